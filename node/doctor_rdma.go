package node

import (
	"errors"
	"slices"
	"strings"

	"tandem/xfer/fabric"
)

// rdma tells whether KV can move by RDMA here.
func (d *doctor) rdma() {
	infos, err := fabric.Providers()
	d.judgeRDMA(infos, err)
}

// judgeRDMA compares what there is with what was asked for.
func (d *doctor) judgeRDMA(infos []fabric.Info, err error) {
	const name = "RDMA"
	var hardware, all []string
	for _, i := range infos {
		all = append(all, i.Provider)
		if i.RDMA {
			hardware = append(hardware, i.Provider)
		}
	}
	wanted, provider := d.Config.RDMA != "off" && d.Config.RDMA != "", d.Config.RDMAProvider
	say, remedy := d.warn, "leave --rdma off, or "
	if d.Config.RDMA == "require" {
		say, remedy = d.wrong, "the node will not start: "
	}
	switch {
	case err != nil && !wanted && errors.Is(err, fabric.ErrNotBuilt):
		d.ok(name, "this program was built without it; QUIC and TCP are used")
	case err != nil && !wanted:
		d.ok(name, "libfabric is not there; it is not needed, QUIC and TCP are used")
	case err != nil:
		say(name, remedy+"do what it says", "%v", err)
	case !wanted && len(hardware) > 0:
		d.ok(name, "%s: --rdma auto lets KV use it, unencrypted, on a network that you trust", strings.Join(hardware, ", "))
	case !wanted:
		d.ok(name, "no device; QUIC and TCP are used")
	case provider != "" && !slices.Contains(all, provider):
		say(name, remedy+"choose one that is there", "--rdma-provider %s is not there; there are %s", provider, strings.Join(all, ", "))
	case provider != "" && !slices.Contains(hardware, provider):
		d.warn(name, "software providers are for tests: leave --rdma-provider empty", "%s copies in software, slower than TCP", provider)
	case len(hardware) == 0:
		say(name, remedy+"check the device with fi_info and rdma link", "libfabric drives no device here, it only has %s", strings.Join(all, ", "))
	default:
		d.ok(name, "%s", strings.Join(hardware, ", "))
	}
}
