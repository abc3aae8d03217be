package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"tandem/cluster/quorum"
	"tandem/node/api"
)

// revocations are the API keys that the nodes have agreed to refuse. They are kept in
// the data folder, so that a node that starts while there is no quorum refuses them,
// too.
type revocations struct {
	node *Node
	file string

	mu struct {
		sync.Mutex
		revokedKeys
	}
}

// revokedKeys is the file. Cluster, Generation and Changes say which agreement it is
// of: an older state, which a node that starts sees first, changes nothing.
type revokedKeys struct {
	Cluster    string   `json:"cluster"`
	Generation uint64   `json:"generation"`
	Changes    uint64   `json:"changes"`
	Keys       []string `json:"keys"` // names and fingerprints
}

// revokedFileMax is the longest file of revoked keys: as many as may be agreed on,
// each of the longest name.
const revokedFileMax = 2 << 20

// openRevocations reads what is kept. A file that cannot be read stops the node: going
// on would accept keys that were revoked.
func openRevocations(n *Node) (*revocations, error) {
	r := &revocations{node: n, file: filepath.Join(n.cfg.DataDir, "revoked-keys.json")}
	f, err := os.Open(r.file)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, revokedFileMax))
	if err == nil {
		err = json.Unmarshal(data, &r.mu.revokedKeys)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; delete the file to accept keys that were revoked until the cluster has told them again", r.file, err)
	}
	return r, nil
}

// hand gives the list to the API.
func (r *revocations) hand() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node.api.SetRevoked(r.mu.Keys)
}

// agreed takes over what the nodes have agreed on.
func (r *revocations) agreed(s quorum.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := revokedKeys{Cluster: s.ClusterID, Generation: s.Generation, Changes: s.Changes, Keys: s.Revocations}
	if now.Cluster == "" || !now.after(r.mu.revokedKeys) || slices.Equal(now.Keys, r.mu.Keys) {
		return
	}
	r.mu.revokedKeys = now
	r.node.api.SetRevoked(now.Keys)
	data, err := json.Marshal(now)
	if err == nil {
		err = writeWhole(r.file, data)
	}
	if err != nil {
		r.node.log.Error("the list of revoked API keys is in force but could not be kept: after a restart without quorum they would be accepted", "file", r.file, "error", err)
	}
}

// after tells whether a list is not older than another one.
func (k revokedKeys) after(o revokedKeys) bool {
	if k.Cluster != o.Cluster || k.Generation != o.Generation {
		return k.Cluster != o.Cluster || k.Generation > o.Generation
	}
	return k.Changes >= o.Changes
}

// writeWhole replaces a file, so that a crash leaves the old or the new one.
func writeWhole(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// keyAdmin has the nodes agree on revoked keys: api.KeyAdmin.
type keyAdmin struct{ node *Node }

// Revoke implements api.KeyAdmin.
func (a keyAdmin) Revoke(ctx context.Context, key string, on bool) error {
	p, err := clusterAdmin(a).peers()
	if err != nil {
		return err
	}
	change := quorum.Change{Revoke: key}
	if !on {
		change = quorum.Change{Unrevoke: key}
	}
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	return agreement(p.quorum.Change(ctx, change))
}

var _ api.KeyAdmin = keyAdmin{}
