package xfer

import "fmt"

// bufferWanted is what quic-go asks for in each direction, bytes. It is content with
// half of it on Linux, where the kernel counts twice.
const (
	bufferWanted = 7 << 20
	bufferEnough = bufferWanted / 2
	bufferAdvice = 7_500_000
)

// checkBuffers says once how much the kernel granted, if that is little. quic-go has
// asked for more already, by force where it may.
func (l *Link) checkBuffers() {
	got := granted(l.udp)
	if got == 0 || got >= bufferEnough {
		return
	}
	l.log.Warn("the kernel's UDP buffers are small, so fast transfers by QUIC may lose packets and slow down",
		"wanted_bytes", bufferWanted, "granted_bytes", got, "remedy", fmt.Sprintf("sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d", bufferAdvice, bufferAdvice))
	if l.cfg.Buffers != nil {
		l.cfg.Buffers(bufferWanted, got)
	}
}
