package cluster

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"tandem/cluster/identity"
	"tandem/cluster/member"
)

// largest is a meta of which every part is as long as it may be.
func largest() meta {
	m := meta{
		Name: strings.Repeat("n", nameMax), Version: strings.Repeat("v", versionMax), Role: member.Decode, Draining: true, Leaving: true,
		API: strings.Repeat("a", apiMax), Started: time.Unix(1, 2), Process: process{1, 2, 3}, Keys: make([]identity.KeyID, identity.SecretsMax),
	}
	for range peersMax {
		m.Peer = append(m.Peer, strings.Repeat("p", peersTotal/peersMax-1))
	}
	return m
}

func TestTheLargestMetaFits(t *testing.T) {
	b, err := largest().encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of %d", len(b), metaMax)
	if len(b) > metaMax {
		t.Errorf("%d bytes, memberlist takes %d", len(b), metaMax)
	}
	m, err := decodeMeta(b)
	if err != nil || !reflect.DeepEqual(m, largest()) {
		t.Errorf("%+v, %v", m, err)
	}
	// Nodes of later versions append.
	b[0]++
	if m, err = decodeMeta(append(b, "more"...)); err != nil || m.Name != largest().Name {
		t.Errorf("a later version: %+v, %v", m, err)
	}
	b[1] = 99
	if m, err = decodeMeta(b); err != nil || m.Role != member.Hybrid {
		t.Errorf("an unknown role: %+v, %v", m.Role, err)
	}
}

func TestMetaThatIsTooLong(t *testing.T) {
	for name, change := range map[string]func(*meta){
		"name":           func(m *meta) { m.Name += "n" },
		"version":        func(m *meta) { m.Version += "v" },
		"API address":    func(m *meta) { m.API += "a" },
		"peer addresses": func(m *meta) { m.Peer = append(m.Peer, "p") },
		"peer address":   func(m *meta) { m.Peer[0] = strings.Repeat("p", peerMax+1) },
		"bytes of peer":  func(m *meta) { m.Peer[0] += "p" },
		"role":           func(m *meta) { m.Role = "king" },
		"secrets":        func(m *meta) { m.Keys = append(m.Keys, identity.KeyID{}) },
		"printable":      func(m *meta) { m.Name = "a\nb" },
	} {
		m := largest()
		change(&m)
		if _, err := m.encode(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	for _, m := range []meta{largest(), {Role: member.Hybrid, Started: time.Unix(0, 0)}} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			if len(m.Peer) > 0 { // together they may be longer than this version writes
				return
			}
			t.Fatalf("%+v was read and cannot be written: %v", m, err)
		}
		back, err := decodeMeta(again)
		if err != nil || !reflect.DeepEqual(m, back) {
			t.Fatalf("%+v became %+v, %v", m, back, err)
		}
	})
}

func testHello() hello {
	return hello{
		Kind: kindJoin, Code: codeOK, WireMin: 1, WireMax: 2, Keys: []identity.KeyID{{1}, {2}}, Using: identity.KeyID{2},
		Nonce: [16]byte{7}, ID: testID(1), Process: process{8}, Clock: 9, Gossip: netip.MustParseAddrPort("192.0.2.1:9495"),
		Name: "n1", Version: "1.2", Cluster: "c", Detail: "a detail",
	}
}

func noProof(int, []byte) [32]byte { return [32]byte{} }

func TestHelloIsReadBack(t *testing.T) {
	h := testHello()
	b, err := h.encode(noProof, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := readFrame(bytes.NewReader(b))
	if err != nil || !reflect.DeepEqual(f.hello, h) || len(f.macs) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	for n := range b {
		if _, err := readFrame(bytes.NewReader(b[:n])); err == nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	h.Gossip = netip.MustParseAddrPort("[fd00::2]:1")
	h.Detail = strings.Repeat("d", detailMax)
	h.Name, h.Version, h.Cluster = strings.Repeat("n", nameMax), strings.Repeat("v", versionMax), strings.Repeat("c", clusterMax)
	h.Keys = make([]identity.KeyID, identity.SecretsMax)
	if b, err = h.encode(noProof, nil); err != nil || len(b) > helloHeader+helloBodyMax+4*macBytes {
		t.Fatalf("the largest: %d bytes, %v", len(b), err)
	}
	if f, err = readFrame(bytes.NewReader(b)); err != nil || !reflect.DeepEqual(f.hello, h) {
		t.Fatalf("the largest: %+v, %v", f, err)
	}
}

// A hello proves the secret, and an answer to one question proves nothing to another.
func TestProofs(t *testing.T) {
	id := func(secret string, more ...string) *identity.Identity {
		i, err := identity.New(secret, testID(1), more...)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	ours, other, both := id(secretA), id(secretB), id(secretB, secretA)
	for _, tt := range []struct {
		name          string
		from, to      *identity.Identity
		context, seen string
		want          proof
	}{
		{"same secret", ours, ours, "q", "q", proofGood},
		{"another question", ours, ours, "q", "r", proofForged},
		{"another secret", other, ours, "", "", proofNone},
		{"new and old to old", both, ours, "q", "q", proofGood},
		{"old to new and old", ours, both, "q", "q", proofGood},
		{"new to new and old", other, both, "q", "q", proofGood},
		{"new and old, another question", both, ours, "q", "r", proofForged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := testHello()
			h.Keys = tt.from.KeyIDs()
			b, err := h.encode(tt.from.MAC, []byte(tt.context))
			if err != nil {
				t.Fatal(err)
			}
			f, err := readFrame(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.proven(tt.to, []byte(tt.seen)); got != tt.want {
				t.Errorf("proof %v, want %v", got, tt.want)
			}
			b[helloHeader+5]++ // whatever is changed, the proof goes
			if f, err := readFrame(bytes.NewReader(b)); err == nil && f.proven(tt.to, []byte(tt.seen)) == proofGood {
				t.Error("a changed hello was proven")
			}
		})
	}
}

func FuzzReadHello(f *testing.F) {
	b, err := testHello().encode(noProof, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(helloMagic + "\x01\xff\xff"))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		from := bytes.NewReader(b)
		fr, err := readFrame(from)
		if read := len(b) - from.Len(); read > helloHeader+helloBodyMax+identity.SecretsMax*macBytes {
			t.Fatalf("%d bytes were read", read)
		}
		if err != nil {
			return
		}
		again, err := fr.encode(noProof, nil)
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", fr.hello, err)
		}
		back, err := readFrame(bytes.NewReader(again))
		if err != nil || !reflect.DeepEqual(back.hello, fr.hello) {
			t.Fatalf("%+v became %+v, %v", fr.hello, back.hello, err)
		}
	})
}

func FuzzDecodeGoodbye(f *testing.F) {
	f.Add(encodeGoodbye(testID(1), process{1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, p, err := decodeGoodbye(b)
		if err == nil && !bytes.HasPrefix(b, encodeGoodbye(id, p)) {
			t.Fatalf("%x became %s %x", b, id, p)
		}
	})
}

func FuzzRemembered(f *testing.F) {
	f.Add([]byte(memoryHeader + "\n" + string(testID(1)) + " 127.0.0.1:9495 n1\n" + string(testID(2)) + " [::1]:9495\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &memory{byID: map[member.ID]place{}}
		m.read(bytes.NewReader(b))
		if len(m.byID) > memoryMax {
			t.Fatalf("%d nodes", len(m.byID))
		}
		for id, p := range m.byID {
			if _, err := member.ParseID(string(id)); err != nil || !p.addr.IsValid() {
				t.Fatalf("%q %v", id, p)
			}
		}
	})
}
