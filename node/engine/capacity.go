package engine

import (
	"bufio"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// HostCapacity is the memory that the models of this process may take together,
// with what they take already: what the machine and the control groups of the
// process have left, plus the anonymous memory of the process itself. File pages
// count as left, and so do weights that are mapped. Where nothing is known, which
// is so on other systems than Linux, the answer is the largest number.
func HostCapacity() int64 { return capacity(os.DirFS("/")) }

func capacity(root fs.FS) int64 {
	left, ok := field(root, "proc/meminfo", "MemAvailable:")
	if !ok {
		return math.MaxInt64
	}
	left *= 1024
	for _, g := range memoryGroups(root) {
		if n, ok := g.left(root); ok {
			left = min(left, n)
		}
	}
	own, _ := field(root, "proc/self/status", "RssAnon:")
	return max(left, 0) + own*1024
}

// memoryGroup is a control group that may limit memory, in one of the two versions
// of their file system.
type memoryGroup struct {
	dir          string
	limit, usage string   // files
	filePages    []string // fields of memory.stat
}

// memoryGroups lists the groups of this process and all above them. In a container
// the names may be those of the host; then only the root of the mount is found.
func memoryGroups(root fs.FS) []memoryGroup {
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var groups []memoryGroup
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(parts) != 3 {
			continue
		}
		g := memoryGroup{dir: "sys/fs/cgroup", limit: "memory.max", usage: "memory.current", filePages: []string{"inactive_file", "active_file"}}
		switch {
		case parts[1] == "memory":
			g = memoryGroup{dir: "sys/fs/cgroup/memory", limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes",
				filePages: []string{"total_inactive_file", "total_active_file"}}
		case parts[1] != "":
			continue
		}
		top := g.dir
		for g.dir = path.Join(top, path.Clean("/"+parts[2])); strings.HasPrefix(g.dir, top); g.dir = path.Dir(g.dir) {
			groups = append(groups, g)
		}
	}
	return groups
}

// left is what the group may still take. False: it has no limit, or does not exist
// under this name.
func (g memoryGroup) left(root fs.FS) (int64, bool) {
	limit, ok := number(root, path.Join(g.dir, g.limit))
	if !ok {
		return 0, false
	}
	usage, ok := number(root, path.Join(g.dir, g.usage))
	if !ok {
		return 0, false
	}
	for _, name := range g.filePages {
		n, _ := field(root, path.Join(g.dir, "memory.stat"), name)
		usage -= n
	}
	return limit - max(usage, 0), true
}

// number reads a file that holds one number.
func number(root fs.FS, file string) (int64, bool) {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil && n >= 0
}

// field reads the number after a word at the beginning of a line.
func field(root fs.FS, file, word string) (int64, bool) {
	f, err := root.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n int64
		if rest, ok := strings.CutPrefix(lines.Text(), word); ok {
			_, err := fmt.Sscan(rest, &n)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}
