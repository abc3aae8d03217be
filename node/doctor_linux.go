package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockHolder is the process that holds a lock on a file, 0 if that is not known.
func lockHolder(f *os.File) int {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	return holderIn(string(locks), st.Ino)
}

// holderIn finds the holder of a lock on an inode in the text of /proc/locks, whose
// lines are: number, FLOCK, ADVISORY, WRITE, process, major:minor:inode, range.
func holderIn(locks string, inode uint64) int {
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], fmt.Sprintf(":%d", inode)) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// freeSpace is what may be written to the disk of a folder, in bytes.
func freeSpace(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}

// dontFragment keeps the kernel from cutting packets of an IPv4 or IPv6 socket, and
// from believing what it has learned of the way.
func dontFragment(c syscall.RawConn) error {
	var err4, err6 error
	err := c.Control(func(fd uintptr) {
		err4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		err6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
	})
	if err == nil && err4 != nil {
		err = err6
	}
	return err
}
