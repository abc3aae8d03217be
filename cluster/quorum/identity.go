package quorum

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tandem/cluster/member"
)

// realm is a cluster at one generation of it. Raft's streams exist only within one.
type realm struct {
	Cluster    string `json:"cluster"`    // "": none yet, this node waits to be let in
	Generation uint64 `json:"generation"` // rises with every recovery
	Tag        string `json:"tag"`        // tells two recoveries of one generation apart
}

// compare orders realms; the order means nothing but that all see the same one.
func (r realm) compare(o realm) int {
	return cmp.Or(cmp.Compare(r.Cluster, o.Cluster), cmp.Compare(r.Tag, o.Tag))
}

// identity is what this node's folder is in which cluster.
type identity struct {
	Self member.ID `json:"self"`
	realm

	// Incarnation is made with the folder. A node that lost its folder has another one,
	// and so cannot be taken for the voter that it was.
	Incarnation string `json:"incarnation"`

	// MayVote: this incarnation founded the cluster, or has seen itself let in. It
	// never goes back.
	MayVote bool `json:"may_vote"`

	// Lost: the folder had a state and gave it up, or lost it to damage, while others have
	// one. It waits to be let in and does not found a cluster by itself.
	Lost bool `json:"lost,omitempty"`

	// Nodes are the incarnations that the state machine knew last. They are kept here
	// because nodes must find each other before the machine has been replayed.
	// They are those of Changes, and hold against a machine that has not come so far.
	Nodes   map[member.ID]string `json:"nodes,omitempty"`
	Changes uint64               `json:"changes"`
}

func newIdentity(self member.ID) identity {
	return identity{Self: self, Incarnation: token(), Nodes: map[member.ID]string{}}
}

func (i identity) clone() identity {
	i.Nodes = cloneMap(i.Nodes)
	return i
}

func encodeIdentity(i identity) ([]byte, error) {
	body, err := json.Marshal(i)
	return seal(body), err
}

// found makes a new cluster of this node alone, or the next generation of one.
func (i identity) found(from realm) identity {
	i.realm = realm{Cluster: from.Cluster, Generation: from.Generation + 1, Tag: token()}
	if i.Cluster == "" {
		i.Cluster = token()
	}
	i.MayVote, i.Lost = true, false
	i.Nodes = map[member.ID]string{i.Self: i.Incarnation}
	return i
}

// token is 16 random hexadecimal digits.
func token() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it cannot fail
	return hex.EncodeToString(b)
}

// memo is a second, smaller record of what the node knew, in a file of its own. It is
// read only if the store is lost: it tells whether others hold the state, and if not,
// it is the state. It may be a little behind.
type memo struct {
	realm
	Voters  []member.ID `json:"voters"`
	Machine *machine    `json:"machine"`
}

const (
	storeFile  = "log.db"
	memoFile   = "last.json"
	asideDir   = "set-aside"
	asideMax   = 4 // folders that are kept there
	memoPrefix = "sum "
)

// readMemo is empty if there is none or it cannot be read.
func readMemo(dir string) (memo, error) {
	var m memo
	data, err := os.ReadFile(filepath.Join(dir, memoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	return decodeMemo(data)
}

func decodeMemo(data []byte) (memo, error) {
	var m memo
	head, body, ok := strings.Cut(string(data), "\n")
	if !ok || len(body) > snapshotBytesMax+1<<20 || head != memoPrefix+hex.EncodeToString(seal([]byte(body))[:4]) {
		return memo{}, fmt.Errorf("%s: %w", memoFile, errDamaged)
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return memo{}, fmt.Errorf("%s: %w: %w", memoFile, errDamaged, err)
	}
	if m.Machine == nil {
		m.Machine = newMachine()
	}
	m.Machine.normal()
	return m, nil
}

func (m memo) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return append([]byte(memoPrefix+hex.EncodeToString(seal(body)[:4])+"\n"), body...), nil
}

// write replaces the file.
func (m memo) write(dir string) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, memoFile+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, memoFile))
	}
	return err
}

// setAside moves files out of the way, for people who want to look,
// and drops what was set aside long ago. It says where they are.
func setAside(dir string, files ...string) (string, error) {
	parent := filepath.Join(dir, asideDir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	old, err := os.ReadDir(parent)
	if err != nil {
		return "", err
	}
	number := 1
	kept := []string{}
	for _, e := range old {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "%06d", &n); err == nil {
			number = max(number, n+1)
			kept = append(kept, e.Name())
		}
	}
	slices.Sort(kept)
	for len(kept) >= asideMax {
		if err := os.RemoveAll(filepath.Join(parent, kept[0])); err != nil {
			return "", err
		}
		kept = kept[1:]
	}
	to := filepath.Join(parent, fmt.Sprintf("%06d", number))
	if err := os.Mkdir(to, 0o700); err != nil {
		return "", err
	}
	for _, name := range files {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return to, nil
}
