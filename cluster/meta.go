package cluster

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"tandem/cluster/identity"
	"tandem/cluster/member"
)

// Limits of what a node says of itself, in bytes. Together they stay below what
// memberlist carries with a name: metaMax is checked by a test.
const (
	nameMax    = 64
	versionMax = 40
	peersMax   = 4   // addresses
	peerMax    = 64  // each
	peersTotal = 160 // all of them with their lengths
	apiMax     = 128

	metaMax = memberlist.MetaMaxSize
)

// metaVersion is the first byte. Later versions only append, so that older nodes read
// what they know and leave the rest.
const metaVersion = 1

// process tells runs of one node apart; random.
type process [8]byte

// meta is what a node says of itself through gossip.
type meta struct {
	Name     string
	Version  string
	Role     member.Role
	Draining bool
	Leaving  bool // it is about to leave; what comes next is not a failure
	Peer     []string
	API      string
	Started  time.Time
	Process  process
	Keys     []identity.KeyID // of all secrets that it knows
}

const (
	flagDraining = 1 << iota
	flagLeaving
)

var rolesByCode = []member.Role{member.Hybrid, member.Prefill, member.Decode}

func roleCode(r member.Role) (byte, error) {
	for code, role := range rolesByCode {
		if role == r {
			return byte(code), nil
		}
	}
	return 0, fmt.Errorf("the role %.40q: allowed are %v", string(r), rolesByCode)
}

// encode writes a meta, or says which of its parts is too long.
func (m meta) encode() ([]byte, error) {
	role, err := roleCode(m.Role)
	if err != nil {
		return nil, err
	}
	flags := byte(0)
	if m.Draining {
		flags |= flagDraining
	}
	if m.Leaving {
		flags |= flagLeaving
	}
	b := append(make([]byte, 0, metaMax), metaVersion, role, flags)
	b = appendInt(b, m.Started.UnixNano())
	b = append(b, m.Process[:]...)
	if len(m.Keys) > identity.SecretsMax {
		return nil, fmt.Errorf("%d secrets, %d at most", len(m.Keys), identity.SecretsMax)
	}
	b = append(b, byte(len(m.Keys)))
	for _, k := range m.Keys {
		b = append(b, k[:]...)
	}
	if b, err = appendText(b, "name", m.Name, nameMax); err != nil {
		return nil, err
	}
	if b, err = appendText(b, "version", m.Version, versionMax); err != nil {
		return nil, err
	}
	if b, err = appendText(b, "API address", m.API, apiMax); err != nil {
		return nil, err
	}
	return m.appendPeers(b)
}

func (m meta) appendPeers(b []byte) ([]byte, error) {
	if len(m.Peer) > peersMax {
		return nil, fmt.Errorf("%d peer addresses, %d at most", len(m.Peer), peersMax)
	}
	b = append(b, byte(len(m.Peer)))
	before := len(b)
	for _, p := range m.Peer {
		var err error
		if b, err = appendText(b, "peer address", p, peerMax); err != nil {
			return nil, err
		}
	}
	if n := len(b) - before; n > peersTotal {
		return nil, fmt.Errorf("%d bytes of peer addresses, %d at most", n, peersTotal)
	}
	return b, nil
}

// decodeMeta reads what another node said of itself.
func decodeMeta(b []byte) (meta, error) {
	if len(b) > metaMax {
		return meta{}, fmt.Errorf("what a node says of itself has %d bytes, %d at most", len(b), metaMax)
	}
	r := &reader{rest: b}
	if v := r.u8(); r.err == nil && v < metaVersion {
		r.err = fmt.Errorf("format %d is unknown", v)
	}
	var m meta
	if code := r.u8(); r.err == nil && int(code) >= len(rolesByCode) {
		m.Role = member.Hybrid // a role of later versions: any node can do everything
	} else {
		m.Role = rolesByCode[code]
	}
	flags := r.u8()
	m.Draining, m.Leaving = flags&flagDraining != 0, flags&flagLeaving != 0
	m.Started = time.Unix(0, r.i64())
	copy(m.Process[:], r.take(len(m.Process)))
	m.Keys = r.keyIDs()
	m.Name = r.text("name", nameMax)
	m.Version = r.text("version", versionMax)
	m.API = r.text("API address", apiMax)
	for range r.count("peer addresses", peersMax) {
		m.Peer = append(m.Peer, r.text("peer address", peerMax))
	}
	if r.err != nil {
		return meta{}, fmt.Errorf("what a node says of itself: %w", r.err)
	}
	return m, nil
}

// keyIDs reads the names of secrets.
func (r *reader) keyIDs() []identity.KeyID {
	var out []identity.KeyID
	for range r.count("secrets", identity.SecretsMax) {
		var k identity.KeyID
		copy(k[:], r.take(len(k)))
		out = append(out, k)
	}
	return out
}
