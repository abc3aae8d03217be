package identity

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"sync"
	"time"

	"tandem/cluster/member"
)

// Limits of a secret, in bytes. Below the lower one it can be guessed by trying; the
// upper one only stops a wrong file from being taken for a secret.
const (
	SecretMin = 16
	SecretMax = 1024
	// SecretsMax is how many secrets a node knows at a time while they are changed.
	SecretsMax = 4
)

// What the secret is expanded with; one text for each use. The first is part of
// docs/kv-format.md.
const (
	blockKeyInfo  = "tandem block key 1"
	gossipKeyInfo = "tandem gossip key 1"
	caSeedInfo    = "tandem certificate authority 1"
	keyIDInfo     = "tandem public key id 1"
	helloKeyInfo  = "tandem hello key 1"
)

// KeyIDBytes is the length of a raw key id. 80 bits make 16 letters without a rest.
const KeyIDBytes = 10

// KeyID names a secret without telling it.
type KeyID [KeyIDBytes]byte

// keyIDText writes key ids so that they can be part of a host name.
var keyIDText = base32.StdEncoding.WithPadding(base32.NoPadding)

func (k KeyID) String() string { return strings.ToLower(keyIDText.EncodeToString(k[:])) }

// SecretError says which secret cannot be used, and why.
type SecretError struct {
	Which string // "secret" or "old secret 2"
	Fault string
}

func (e *SecretError) Error() string {
	return fmt.Sprintf("the cluster's %s %s; allowed are %d to %d printable characters without blanks at the ends", e.Which, e.Fault, SecretMin, SecretMax)
}

// CheckSecret says what is wrong with a secret, or nil.
func CheckSecret(secret string) error { return checkSecret("secret", secret) }

func checkSecret(which, secret string) error {
	fault := ""
	switch {
	case len(secret) < SecretMin, len(secret) > SecretMax:
		fault = fmt.Sprintf("has %d characters", len(secret))
	case strings.TrimSpace(secret) != secret:
		fault = "begins or ends with a blank"
	case strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r == 0x7f }):
		fault = "has a control character"
	}
	if fault == "" {
		return nil
	}
	return &SecretError{Which: which, Fault: fault}
}

// Identity is one node's share in its cluster: the secrets that it knows, and itself.
type Identity struct {
	self    member.ID
	now     func() time.Time
	secrets []keys // the one in use, then older ones; never empty, never changed

	mu    sync.Mutex
	certs []minted // of this node, one for each secret
}

// keys is what comes of one secret.
type keys struct {
	id     KeyID
	block  [32]byte
	gossip [32]byte
	hello  [32]byte
	ca     authority
}

// New makes the identity of a node. The first secret is the one that it uses; more are
// older ones that it still accepts from others while the secret is being changed.
func New(secret string, self member.ID, more ...string) (*Identity, error) {
	return NewAt(time.Now, secret, self, more...)
}

// NewAt is New with a clock.
func NewAt(now func() time.Time, secret string, self member.ID, more ...string) (*Identity, error) {
	if _, err := member.ParseID(string(self)); err != nil {
		return nil, err
	}
	if 1+len(more) > SecretsMax {
		return nil, fmt.Errorf("%d cluster secrets: a node knows %d at most", 1+len(more), SecretsMax)
	}
	id := &Identity{self: self, now: now}
	for i, s := range append([]string{secret}, more...) {
		which := "secret"
		if i > 0 {
			which = fmt.Sprintf("old secret %d", i)
		}
		if err := checkSecret(which, s); err != nil {
			return nil, err
		}
		k, err := derive(s)
		if err != nil {
			return nil, fmt.Errorf("the cluster's %s: %w", which, err)
		}
		id.secrets = append(id.secrets, k)
	}
	id.certs = make([]minted, len(id.secrets))
	return id, nil
}

// derive makes all keys of a secret.
func derive(secret string) (keys, error) {
	var k keys
	var seed [32]byte
	for _, d := range []struct {
		info string
		to   []byte
	}{
		{blockKeyInfo, k.block[:]}, {gossipKeyInfo, k.gossip[:]}, {helloKeyInfo, k.hello[:]},
		{keyIDInfo, k.id[:]}, {caSeedInfo, seed[:]},
	} {
		raw, err := hkdf.Key(sha256.New, []byte(secret), nil, d.info, len(d.to))
		if err != nil {
			return keys{}, err
		}
		copy(d.to, raw)
	}
	ca, err := newAuthority(seed, k.id)
	k.ca = ca
	return k, err
}

// Self is the node that this is the identity of.
func (i *Identity) Self() member.ID { return i.self }

// GossipKey encrypts gossip.
func (i *Identity) GossipKey() [32]byte { return i.secrets[0].gossip }

// GossipKeys are the keys of all secrets that the node knows, the one in use first.
func (i *Identity) GossipKeys() [][32]byte {
	out := make([][32]byte, len(i.secrets))
	for n, k := range i.secrets {
		out[n] = k.gossip
	}
	return out
}

// BlockKey is the key of block ids; it follows the secret in use.
func (i *Identity) BlockKey() [32]byte { return i.secrets[0].block }

// ClusterKeyID names the secret in use in public: equal texts, equal secrets.
func (i *Identity) ClusterKeyID() string { return i.secrets[0].id.String() }

// KeyIDs names all secrets that the node knows, in the order of GossipKeys.
func (i *Identity) KeyIDs() []KeyID {
	out := make([]KeyID, len(i.secrets))
	for n, k := range i.secrets {
		out[n] = k.id
	}
	return out
}

// MAC proves knowledge of secret n (in the order of KeyIDs) over a message that is sent
// in the clear before there is anything encrypted.
func (i *Identity) MAC(n int, message []byte) [32]byte {
	mac := hmac.New(sha256.New, i.secrets[n].hello[:])
	mac.Write(message)
	return [32]byte(mac.Sum(nil))
}
