package llama

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
)

func TestPhysicalCores(t *testing.T) {
	// machine has CPUs 0 ... n-1, two on each core, on one socket or two.
	machine := func(n, sockets int, allowed string) fstest.MapFS {
		m := fstest.MapFS{"proc/self/status": {Data: []byte("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t" + allowed + "\n")}}
		for cpu := range n {
			dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
			m[dir+"core_id"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d\n", cpu/2%(n/2/sockets))}
			m[dir+"physical_package_id"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d\n", cpu/(n/sockets))}
		}
		return m
	}
	tests := []struct {
		name string
		root fstest.MapFS
		want int
	}{
		{"all", machine(8, 1, "0-7"), 4},
		{"two sockets", machine(8, 2, "0-7"), 4},
		{"pinned", machine(8, 1, "0-1,4"), 2},
		{"no topology", machine(2, 1, "0-5"), 0},
		{"no status", fstest.MapFS{}, 0},
		{"nonsense", machine(8, 1, "7-0"), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := physicalCores(tt.root); got != tt.want {
				t.Errorf("%d cores, want %d", got, tt.want)
			}
		})
	}
	if n := DefaultThreads(); n < 1 || n > threadsMax {
		t.Errorf("DefaultThreads() = %d", n)
	}
}

func TestParseCPUList(t *testing.T) {
	tests := []struct {
		list string
		want []int
	}{
		{"0", []int{0}}, {"0-2,5", []int{0, 1, 2, 5}}, {"", nil}, {"a", nil}, {"1-", nil}, {"3-1", nil}, {"0-99999999", nil},
	}
	for _, tt := range tests {
		if got := parseCPUList(tt.list); !slices.Equal(got, tt.want) {
			t.Errorf("parseCPUList(%q) = %v, want %v", tt.list, got, tt.want)
		}
	}
}
