//go:build unix

package xfer

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// bulkPeer in the environment is the address of a node in another process, so that
// BenchmarkBulk measures the way to it, say into another network namespace. That
// process is this test binary with XFER_TEST_PEER=quic and XFER_TEST_LISTEN=host:port.
const bulkPeer = "XFER_BULK_PEER"

// BenchmarkBulk is data over some lanes, read a MiB at a time, next to as many
// connections of TCP, and of TLS 1.3 over it, without anything of ours. CPU time is that
// of both ends if they are in one process.
func BenchmarkBulk(b *testing.B) {
	for _, lanes := range []int{1, 2, 4} {
		for _, way := range []Transport{QUIC, TCP} {
			b.Run(fmt.Sprintf("%s/%d", way, lanes), func(b *testing.B) { benchLanes(b, way, lanes) })
		}
		if os.Getenv(bulkPeer) == "" {
			b.Run(fmt.Sprintf("plain-tcp/%d", lanes), func(b *testing.B) { benchPlain(b, nil, nil, lanes) })
			server, client := newTestIdentity(b, "secret", nodeID(2)), newTestIdentity(b, "secret", nodeID(1))
			b.Run(fmt.Sprintf("plain-tls/%d", lanes), func(b *testing.B) { benchPlain(b, server.ServerTLS(), client.ClientTLS(nodeID(2)), lanes) })
		}
	}
}

// benchLanes opens lanes beyond those of OpenBulk, too, to show that they do not pay.
func benchLanes(b *testing.B, way Transport, lanes int) {
	elsewhere := os.Getenv(bulkPeer)
	a, _, book := bulkPair(b, func(_ int, c *Config) {
		c.Timings = Timings{}
		if elsewhere != "" {
			c.Listen = ":0"
		}
	})
	if elsewhere != "" {
		book.set(nodeID(2), elsewhere)
	}
	readers := make([]io.Reader, lanes)
	for n := range lanes {
		s, err := a.openLane(b.Context(), nodeID(2), "pour", bulkKey{way, lane(n + 1)})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		s.SetReadDeadline(time.Now().Add(time.Minute))
		readers[n] = s
	}
	benchReaders(b, readers)
}

// benchPlain reads from connections whose other end writes all the time; without
// configurations there is no TLS.
func benchPlain(b *testing.B, server, client *tls.Config, lanes int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var writers sync.WaitGroup
	defer writers.Wait()
	defer listener.Close()
	readers := make([]io.Reader, lanes)
	for i := range readers {
		near, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer near.Close()
		far, err := listener.Accept()
		if err != nil {
			b.Fatal(err)
		}
		defer far.Close()
		if server != nil {
			near, far = tls.Client(near, client), tls.Server(far, server)
		}
		near.SetReadDeadline(time.Now().Add(time.Minute))
		readers[i] = near
		writers.Go(func() {
			piece := make([]byte, 1<<20)
			for err := error(nil); err == nil; {
				_, err = far.Write(piece)
			}
		})
	}
	benchReaders(b, readers)
}

func benchReaders(b *testing.B, readers []io.Reader) {
	const piece = 1 << 20
	for _, r := range readers { // handshakes and the first windows are not measured
		if _, err := io.CopyN(io.Discard, r, piece); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(piece)
	before := cpuTime(b)
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	for _, r := range readers {
		all.Go(func() {
			buf := make([]byte, piece)
			for left.Add(-1) >= 0 {
				if _, err := io.ReadFull(r, buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric((cpuTime(b)-before).Seconds()/(float64(b.N)*piece/1e9), "cpu-s/GB")
}

// cpuTime is the processor time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
