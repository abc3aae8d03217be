//go:build fabric && linux && cgo

package fabric

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

func (o Options) validate() error {
	switch {
	case len(o.Region) == 0:
		return errors.New("fabric: the region is empty")
	case len(o.Provider) > providerBytesMax || strings.IndexByte(o.Provider, 0) >= 0:
		return fmt.Errorf("fabric: %.80q is no name of a provider", o.Provider)
	case len(o.Address) > addressBytesMax || strings.IndexByte(o.Address, 0) >= 0:
		return fmt.Errorf("fabric: %.80q is no IP address", o.Address)
	}
	return nil
}

// rdmaProviders are the providers that Open tries by itself, best first.
var rdmaProviders = []string{"verbs;ofi_rxm", "efa", "cxi", "opx", "psm3"}

// rdmaDevices is where the kernel lists RDMA devices.
const rdmaDevices = "/sys/class/infiniband"

// isRDMA tells whether a provider drives hardware that reads by itself. psm3 does only
// with a device: without one it works over sockets.
func isRDMA(provider string) bool {
	if provider == "psm3" {
		devices, err := os.ReadDir(rdmaDevices)
		return err == nil && len(devices) > 0
	}
	return slices.Contains(rdmaProviders, provider) || strings.HasPrefix(provider, "verbs")
}

// hasIP tells whether a provider takes an IP address to listen on.
func hasIP(provider string) bool {
	core, _, _ := strings.Cut(provider, ";")
	return slices.Contains([]string{"verbs", "tcp", "net", "sockets", "udp"}, core)
}

// crashes tells whether a provider takes the process with it when a read ends while its
// answer arrives, as it does when the peer is killed or a deadline is over. rxm over
// sockets follows a nil pointer then, before 1.18.
func crashes(provider string, version uint32) bool {
	return strings.HasSuffix(provider, ";ofi_rxm") && !isRDMA(provider) && version < 1<<16|18
}

// protocols are the numbers of enum fi_proto in rdma/fabric.h that can come back;
// headers older than a protocol do not have its name.
var protocols = map[uint32]string{
	1: "rc", 2: "iwarp", 4: "psmx", 5: "udp", 6: "sock-tcp", 11: "rxm", 12: "rxd", 15: "psmx2", 16: "shm",
	19: "xrc", 20: "efa", 21: "psmx3", 22: "rxm-tcp", 23: "opx", 24: "cxi", 25: "xnet",
}

func protocolName(number uint32) string {
	if name, ok := protocols[number]; ok {
		return name
	}
	return fmt.Sprintf("protocol-%d", number)
}
