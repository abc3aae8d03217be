package llama

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// threadsMax is what ggml's thread pool can hold.
const threadsMax = 512

// DefaultThreads is the number of physical cores that this process may use: two
// threads of one core compute no faster than one, and a thread without a core
// makes all others wait for it.
func DefaultThreads() int {
	cores := 0
	if runtime.GOOS == "linux" {
		cores = physicalCores(os.DirFS("/"))
	} else if runtime.GOARCH == "amd64" {
		cores = runtime.NumCPU() / 2
	}
	if cores < 1 {
		cores = runtime.NumCPU()
	}
	// GOMAXPROCS knows the quota of the control group.
	return max(1, min(cores, runtime.GOMAXPROCS(0), threadsMax))
}

// physicalCores counts the cores behind the CPUs on which the process may run; 0
// if the kernel does not tell.
func physicalCores(root fs.FS) int {
	cores := map[string]bool{}
	for _, cpu := range allowedCPUs(root) {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		core, err1 := fs.ReadFile(root, dir+"core_id")
		socket, err2 := fs.ReadFile(root, dir+"physical_package_id")
		if err1 != nil || err2 != nil {
			return 0
		}
		cores[strings.TrimSpace(string(socket))+"/"+strings.TrimSpace(string(core))] = true
	}
	return len(cores)
}

func allowedCPUs(root fs.FS) []int {
	status, err := fs.ReadFile(root, "proc/self/status")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return parseCPUList(strings.TrimSpace(list))
		}
	}
	return nil
}

// cpusMax is more than any kernel is built for.
const cpusMax = 1 << 14

// parseCPUList reads lists like 0-3,8,10-11; nil if list is none.
func parseCPUList(list string) []int {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || lo < 0 || hi < lo || hi >= cpusMax {
			return nil
		}
		for cpu := lo; cpu <= hi; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
