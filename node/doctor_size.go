package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// packetSizes are the payloads of UDP that are tried: what QUIC needs, what passes
// common tunnels, and the largest that it uses.
var packetSizes = []int{1200, 1280, 1360, 1452}

// How packets are tried: each may be lost.
const (
	sizeTries  = 3
	sizeAnswer = 600 * time.Millisecond
)

// idBytes is the length of the connection ids of the packets, whose last byte is the
// number of the size.
const idBytes = 16

// packetSize is the largest of packetSizes that reaches a QUIC port whole. Who speaks
// QUIC answers a packet of a version that it does not know with those that it knows
// (RFC 9000, 6.1), and that packet may have any size.
func packetSize(ctx context.Context, addr string) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", addr)
	if err != nil {
		return 0, systemCause(err)
	}
	udp := conn.(*net.UDPConn)
	defer udp.Close()
	defer context.AfterFunc(ctx, func() { udp.SetDeadline(time.Unix(1, 0)) })()
	raw, err := udp.SyscallConn()
	if err != nil {
		return 0, err
	}
	whole := dontFragment(raw) == nil // where not, large packets may come in pieces
	var id [idBytes]byte
	rand.Read(id[:])
	best := -1
	for range sizeTries {
		var refused error
		for i, size := range packetSizes {
			// One that is larger than the interface takes is not sent.
			if i > best && refused == nil {
				if _, err := udp.Write(unknownVersion(id, byte(i), size)); errors.Is(err, syscall.ECONNREFUSED) {
					refused = err
				}
			}
		}
		if refused == nil {
			best, refused = readSizes(ctx, udp, id, best)
		}
		if refused != nil && best < 0 {
			return 0, errors.New("nothing listens on the port for UDP")
		}
		if best == len(packetSizes)-1 || ctx.Err() != nil {
			break
		}
	}
	switch {
	case best < 0:
		return 0, fmt.Errorf("no answer over UDP within %v", sizeTries*sizeAnswer)
	case !whole:
		return packetSizes[0], nil
	}
	return packetSizes[best], nil
}

// readSizes reads answers until the largest size came back or time is up. The error is
// that nobody is at the port.
func readSizes(ctx context.Context, udp *net.UDPConn, id [idBytes]byte, best int) (int, error) {
	udp.SetReadDeadline(time.Now().Add(sizeAnswer))
	if ctx.Err() != nil {
		return best, nil
	}
	buf := make([]byte, 2048)
	for best < len(packetSizes)-1 {
		n, err := udp.Read(buf)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return best, err
		case errors.Is(err, syscall.EMSGSIZE):
			continue // a router has told that a packet was too large
		case err != nil:
			return best, nil
		}
		if i, ok := sizeAnswered(buf[:n], id); ok {
			best = max(best, i)
		}
	}
	return best, nil
}

// unknownVersion is a packet of QUIC in a version that is reserved for this.
func unknownVersion(id [idBytes]byte, number byte, size int) []byte {
	p := make([]byte, 0, size)
	p = append(p, 0xc0, 0x1a, 0x2a, 0x3a, 0x4a, idBytes)
	p = append(p, id[:]...)
	p = append(p, idBytes)
	p = append(p, id[:idBytes-1]...)
	p = append(p, number)
	return p[:size]
}

// sizeAnswered reads the number of a size out of an answer: a packet of version 0 with
// the connection ids the other way round.
func sizeAnswered(p []byte, id [idBytes]byte) (int, bool) {
	const head = 6 + idBytes
	if len(p) < head || p[0]&0x80 == 0 || !bytes.Equal(p[1:5], []byte{0, 0, 0, 0}) || p[5] != idBytes || !bytes.Equal(p[6:head-1], id[:idBytes-1]) {
		return 0, false
	}
	i := int(p[head-1])
	return i, i < len(packetSizes)
}
