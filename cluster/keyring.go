package cluster

import (
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"

	"tandem/cluster/identity"
)

// keyring decides which of the secrets that this node knows its gossip is encrypted
// with: the first that everybody present can read. While the secret is changed node by
// node, all go on with the old one, and all go over to the new one when the last node
// has it.
type keyring struct {
	ring *memberlist.Keyring
	ids  []identity.KeyID // best first
	keys [][32]byte

	mu    sync.Mutex
	inUse int
}

func newKeyring(id *identity.Identity) (*keyring, error) {
	k := &keyring{ids: id.KeyIDs(), keys: id.GossipKeys()}
	all := make([][]byte, len(k.keys))
	for n := range k.keys {
		all[n] = k.keys[n][:]
	}
	var err error
	k.ring, err = memberlist.NewKeyring(all, all[0])
	return k, err
}

// using names the secret in use.
func (k *keyring) using() identity.KeyID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ids[k.inUse]
}

// settle goes over to the best secret that is in each of the lists. Without one it
// changes nothing and says so.
func (k *keyring) settle(lists [][]identity.KeyID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for n, id := range k.ids {
		if slices.ContainsFunc(lists, func(l []identity.KeyID) bool { return !slices.Contains(l, id) }) {
			continue
		}
		if n != k.inUse {
			if err := k.ring.UseKey(k.keys[n][:]); err != nil {
				return false
			}
			k.inUse = n
		}
		return true
	}
	return false
}

// keysOf are the secrets that each of some nodes knows.
func keysOf(entries []entry) [][]identity.KeyID {
	out := make([][]identity.KeyID, 0, len(entries)+1)
	for _, e := range entries {
		if len(e.keys) > 0 {
			out = append(out, e.keys)
		}
	}
	return out
}
