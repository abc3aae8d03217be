package cluster

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"tandem/cluster/identity"
	"tandem/cluster/member"
)

// The frame of a hello. Its first byte is none with which a stream of memberlist
// begins. The layout is for ever: nodes of all versions must be able to refuse each
// other in words, so later versions only append to the body.
//
//	"TNDM" format(1) length(2) body(length) mac(32) for each secret in the body
const (
	helloMagic   = "TNDM"
	helloFormat  = 1
	helloHeader  = len(helloMagic) + 1 + 2
	helloBodyMax = 1024
	detailMax    = 200
	clusterMax   = 64
	macBytes     = 32
)

// kind is what a hello is for.
type kind uint8

const (
	kindJoin   kind = iota + 1 // may I gossip with you?
	kindCheck                  // who is there?
	kindAnswer                 // to both
)

// code is the outcome of a hello, in the answer; in a question it is a complaint about
// the one who is asked.
type code uint8

const (
	codeOK          code = iota
	codeSelf             // the asker has reached itself
	codeSecret           // no secret in common
	codeForged           // the proof of the secret is wrong
	codeWire             // no wire version in common
	codeCluster          // the same secret, another cluster
	codeDuplicate        // the asker's id is in use by another process
	codeWait             // the asker has moved; its old address is about to be given up
	codeUnreachable      // the asker's advertised address leads nowhere or elsewhere
	codeRotating         // the secret that the cluster speaks is unknown to the asker
	codeBusy             // too many at a time
	codesEnd
)

// hello is what both sides say before they gossip.
type hello struct {
	Kind    kind
	Code    code
	WireMin uint16 // versions of the protocol between nodes
	WireMax uint16
	Keys    []identity.KeyID // of the secrets that are accepted, best first; never empty
	Using   identity.KeyID   // of the secret that the sender's gossip is encrypted with
	Nonce   [16]byte         // of the asker; the answer has the same
	ID      member.ID
	Process process
	Clock   int64 // Unix nanoseconds; compared for a warning only
	Gossip  netip.AddrPort
	Name    string
	Version string
	Cluster string // "": none yet
	Detail  string // of Code, in words
}

// encode writes a frame; sign makes the proof for each secret over what it is given.
func (h hello) encode(sign func(n int, message []byte) [32]byte, context []byte) ([]byte, error) {
	if len(h.Keys) == 0 || len(h.Keys) > identity.SecretsMax {
		return nil, fmt.Errorf("a hello with %d secrets", len(h.Keys))
	}
	b := append(make([]byte, 0, 512), helloMagic...)
	b = append(b, helloFormat, 0, 0)
	b = append(b, byte(h.Kind), byte(h.Code))
	b = binary.BigEndian.AppendUint16(b, h.WireMin)
	b = binary.BigEndian.AppendUint16(b, h.WireMax)
	b = append(b, byte(len(h.Keys)))
	for _, k := range h.Keys {
		b = append(b, k[:]...)
	}
	b = append(b, h.Using[:]...)
	b = append(b, h.Nonce[:]...)
	id, err := hex.DecodeString(string(h.ID))
	if err != nil || len(id) != 16 {
		return nil, fmt.Errorf("a hello of %.40q: no node id", h.ID)
	}
	b = append(b, id...)
	b = append(b, h.Process[:]...)
	b = appendInt(b, h.Clock)
	addr := h.Gossip.Addr().As16()
	b = append(b, addr[:]...)
	b = binary.BigEndian.AppendUint16(b, h.Gossip.Port())
	for _, s := range []struct {
		what, text string
		most       int
	}{{"name", h.Name, nameMax}, {"version", h.Version, versionMax}, {"cluster id", h.Cluster, clusterMax}, {"detail", h.Detail, detailMax}} {
		if b, err = appendText(b, s.what, s.text, s.most); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint16(b[helloHeader-2:], uint16(len(b)-helloHeader))
	signed := append(bytes.Clone(b), context...)
	for n := range h.Keys {
		mac := sign(n, signed)
		b = append(b, mac[:]...)
	}
	return b, nil
}

func appendInt(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// frame is a hello as it came: the bytes that its proofs are over, and the proofs.
type frame struct {
	hello
	raw  []byte
	macs [][macBytes]byte
}

// readFrame reads a hello. It never reads or keeps more than helloHeader + helloBodyMax
// + macBytes for each secret.
func readFrame(from io.Reader) (frame, error) {
	raw := make([]byte, helloHeader, helloHeader+256)
	if _, err := io.ReadFull(from, raw); err != nil {
		return frame{}, fmt.Errorf("read a hello: %w", err)
	}
	if string(raw[:len(helloMagic)]) != helloMagic || raw[len(helloMagic)] != helloFormat {
		return frame{}, errors.New("what answers there is not the gossip port of a node")
	}
	length := int(binary.BigEndian.Uint16(raw[helloHeader-2:]))
	if length > helloBodyMax {
		return frame{}, fmt.Errorf("a hello of %d bytes, %d at most", length, helloBodyMax)
	}
	raw = append(raw, make([]byte, length)...)
	if _, err := io.ReadFull(from, raw[helloHeader:]); err != nil {
		return frame{}, fmt.Errorf("read a hello: %w", err)
	}
	h, err := decodeHello(raw[helloHeader:])
	if err != nil {
		return frame{}, fmt.Errorf("read a hello: %w", err)
	}
	f := frame{hello: h, raw: raw, macs: make([][macBytes]byte, len(h.Keys))}
	for n := range f.macs {
		if _, err := io.ReadFull(from, f.macs[n][:]); err != nil {
			return frame{}, fmt.Errorf("read a hello: %w", err)
		}
	}
	return f, nil
}

// decodeHello reads the body of a hello.
func decodeHello(body []byte) (hello, error) {
	r := &reader{rest: body}
	h := hello{Kind: kind(r.u8()), Code: code(r.u8()), WireMin: r.u16(), WireMax: r.u16(), Keys: r.keyIDs()}
	copy(h.Using[:], r.take(len(h.Using)))
	copy(h.Nonce[:], r.take(len(h.Nonce)))
	h.ID = member.ID(hex.EncodeToString(r.take(16)))
	copy(h.Process[:], r.take(len(h.Process)))
	h.Clock = r.i64()
	var addr [16]byte
	copy(addr[:], r.take(len(addr)))
	h.Gossip = netip.AddrPortFrom(netip.AddrFrom16(addr).Unmap(), r.u16())
	h.Name = r.text("name", nameMax)
	h.Version = r.text("version", versionMax)
	h.Cluster = r.text("cluster id", clusterMax)
	h.Detail = r.text("detail", detailMax)
	switch {
	case r.err != nil:
		return hello{}, r.err
	case h.Kind < kindJoin || h.Kind > kindAnswer:
		return hello{}, fmt.Errorf("kind %d is unknown", h.Kind)
	case len(h.Keys) == 0:
		return hello{}, errors.New("it names no secret")
	}
	return h, nil
}

// proof is what a frame proves about secrets.
type proof int

const (
	proofNone   proof = iota // no secret in common
	proofForged              // one in common by name, and a wrong proof of it
	proofGood
)

// proven checks the proof of the first secret that both know.
func (f frame) proven(id *identity.Identity, context []byte) proof {
	for n, mine := range id.KeyIDs() {
		for m, theirs := range f.Keys {
			if mine != theirs {
				continue
			}
			want := id.MAC(n, append(bytes.Clone(f.raw), context...))
			if hmac.Equal(want[:], f.macs[m][:]) {
				return proofGood
			}
			return proofForged
		}
	}
	return proofNone
}
