package node

import (
	"fmt"
	"testing"

	"tandem/xfer/fabric"
)

func TestDoctorJudgesRDMA(t *testing.T) {
	verbs := fabric.Info{Provider: "verbs;ofi_rxm", RDMA: true}
	tcp := fabric.Info{Provider: "tcp"}
	for _, tt := range []struct {
		name, mode, provider string
		infos                []fabric.Info
		err                  error
		state                string
		words                []string
	}{
		{"off, not built", "off", "", nil, fabric.ErrNotBuilt, CheckOK, []string{"built without"}},
		{"off, no library", "off", "", nil, fmt.Errorf("dlopen: %w", fabric.ErrNoLibrary), CheckOK, []string{"not needed"}},
		{"off, a device", "off", "", []fabric.Info{tcp, verbs}, nil, CheckOK, []string{"verbs", "--rdma auto", "trust"}},
		{"off, no device", "off", "", []fabric.Info{tcp}, nil, CheckOK, []string{"no device"}},
		{"auto, no library", "auto", "", nil, fabric.ErrNoLibrary, CheckWarning, []string{"install libfabric1"}},
		{"require, no library", "require", "", nil, fabric.ErrNoLibrary, CheckWrong, []string{"install libfabric1", "not start"}},
		{"auto, no device", "auto", "", []fabric.Info{tcp}, nil, CheckWarning, []string{"tcp", "fi_info"}},
		{"require, no device", "require", "", []fabric.Info{tcp}, nil, CheckWrong, []string{"tcp"}},
		{"auto, a device", "auto", "", []fabric.Info{verbs}, nil, CheckOK, []string{"verbs"}},
		{"software by name", "auto", "tcp", []fabric.Info{tcp, verbs}, nil, CheckWarning, []string{"software", "slower"}},
		{"one that is not there", "require", "efa", []fabric.Info{tcp, verbs}, nil, CheckWrong, []string{"efa", "verbs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := Examination{Config: Config{RDMA: tt.mode, RDMAProvider: tt.provider}}
			expectCheck(t, made(e, func(d *doctor) { d.judgeRDMA(tt.infos, tt.err) }), tt.state, tt.words...)
		})
	}
}
