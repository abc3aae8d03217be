//go:build unix

package xfer

import (
	"net"
	"runtime"
	"syscall"
)

// granted is the smaller of the two buffers of a socket, in bytes as they were asked
// for; 0 if that is not known.
func granted(udp *net.UDPConn) int {
	raw, err := udp.SyscallConn()
	if err != nil {
		return 0
	}
	var receive, send int
	raw.Control(func(fd uintptr) {
		receive, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		send, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	})
	size := min(receive, send)
	if runtime.GOOS == "linux" {
		size /= 2 // it reports twice what it grants
	}
	return size
}
