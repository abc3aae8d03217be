package models

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const testChunk = 16 << 10 // makes tens of chunks of the small models

// listOf is the chunk list of data.
func listOf(data []byte) Manifest {
	m, err := hashChunks(context.Background(), bytes.NewReader(data), int64(len(data)), testChunk, func(context.Context, time.Duration) error { return nil })
	if err != nil {
		panic(err)
	}
	return m
}

// offer is what a node with data says of it.
func offer(name string, data []byte) PeerModel {
	return PeerModel{Name: name, Digest: sum(data), Size: int64(len(data)), Kind: KindChat, License: "MIT", Origin: "registry/" + name}
}

// node is another node in memory. The two functions may be replaced by worse ones.
type node struct {
	name     string
	manifest func(context.Context) (Manifest, error)
	open     func(ctx context.Context, from, n int64) (io.ReadCloser, error)

	mu     sync.Mutex
	ranges []int64 // where the ranges that were asked for began
	opened int     // not closed yet
}

func (n *node) Name() string { return n.name }

func (n *node) Manifest(ctx context.Context, digest string) (Manifest, error) { return n.manifest(ctx) }

func (n *node) Range(ctx context.Context, digest string, from, length int64) (io.ReadCloser, error) {
	n.mu.Lock()
	n.ranges = append(n.ranges, from)
	n.mu.Unlock()
	r, err := n.open(ctx, from, length)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.opened++
	n.mu.Unlock()
	return &counted{r, n, sync.Once{}}, nil
}

func (n *node) asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.ranges)
}

// counted notes that a range was closed.
type counted struct {
	io.ReadCloser
	of   *node
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		c.of.opened--
		c.of.mu.Unlock()
	})
	return c.ReadCloser.Close()
}

// honest is a node that has data. A test fails if it leaves a range of it open.
func honest(t *testing.T, name string, data []byte) *node {
	t.Helper()
	made := listOf(data)
	n := &node{name: name}
	n.manifest = func(context.Context) (Manifest, error) { return made, nil }
	n.open = func(_ context.Context, from, length int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data[from : from+length])), nil
	}
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.opened != 0 {
			t.Errorf("%d ranges of %s are open", n.opened, name)
		}
	})
	return n
}

// with changes a node.
func (n *node) with(change func(*node)) *node {
	change(n)
	return n
}

// flipped is data with one wrong byte.
func flipped(data []byte, at int) []byte {
	b := bytes.Clone(data)
	b[at] ^= 1
	return b
}

var errGone = errors.New("the node is gone")

// vices are the ways in which a node can be of no use, but for one: each takes
// an honest node that has data.
var vices = map[string]struct {
	spoil func(n *node, data []byte)
	want  error
}{
	"dead": {func(n *node, _ []byte) {
		n.manifest = func(context.Context) (Manifest, error) { return Manifest{}, errGone }
	}, errGone},
	"dies": {func(n *node, _ []byte) {
		n.open = func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, errGone }
	}, errGone},
	"unlike":  {func(n *node, data []byte) { n.manifest = says(listOf(append(bytes.Clone(data), 0))) }, ErrWrongBytes},
	"other":   {func(n *node, data []byte) { n.manifest = says(listOf(flipped(data, 0))) }, ErrWrongBytes},
	"invalid": {func(n *node, data []byte) { m := listOf(data); m.Chunks = m.Chunks[1:]; n.manifest = says(m) }, ErrWrongBytes},
	"flips": {func(n *node, data []byte) {
		n.open = func(_ context.Context, from, length int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(flipped(data[from:from+length], int(length)/2))), nil
		}
	}, ErrWrongBytes},
	"truncates": {func(n *node, data []byte) {
		n.open = func(_ context.Context, from, length int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(data[from : from+length-1])), nil
		}
	}, errShort},
	"stalls": {func(n *node, data []byte) {
		n.open = func(ctx context.Context, from, length int64) (io.ReadCloser, error) {
			r, w := io.Pipe()
			go func() { w.Write(data[from : from+length/2]) }()
			return r, nil // the pipe's reader ends the writer when it is closed
		}
	}, errStalled},
	"hangs": {func(n *node, data []byte) {
		n.open = func(ctx context.Context, _, _ int64) (io.ReadCloser, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}, errStalled},
	// A file of its own with the digest of another: all its chunks fit its list.
	"liar": {func(n *node, data []byte) {
		false_ := flipped(data, len(data)/2)
		m := listOf(false_)
		m.Digest = sum(data)
		n.manifest = says(m)
		n.open = func(_ context.Context, from, length int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(false_[from : from+length])), nil
		}
	}, ErrWrongBytes},
}

func says(m Manifest) func(context.Context) (Manifest, error) {
	return func(context.Context) (Manifest, error) { return m, nil }
}

// storeNode is a node with a real store.
type storeNode struct {
	name string
	*Store
}

func (n storeNode) Name() string { return n.name }

func (n storeNode) Range(_ context.Context, digest string, from, length int64) (io.ReadCloser, error) {
	r, _, err := n.OpenRange(digest, from, length)
	return r, err
}

// peerStore is a store with short chunks and short patience.
func peerStore(t *testing.T) *Store {
	t.Helper()
	s, _ := newStore(t, nil)
	s.peers.chunkBytes, s.peers.stall = testChunk, 100*time.Millisecond
	return s
}

// whole fails if the model is not data, or if anything else is left of a copy.
func whole(t *testing.T, s *Store, name string, data []byte) {
	t.Helper()
	m, err := s.Resolve(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(m.Path)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%s has %d bytes that are not the %d wanted (%v)", name, len(got), len(data), err)
	}
	if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// nothing fails if the store offers anything.
func nothing(t *testing.T, s *Store) {
	t.Helper()
	if got := names(t, s); got != "" {
		t.Errorf("offered %s", got)
	}
	if blobs := dirNames(filepath.Join(s.cfg.Dir, "blobs"), 10); len(blobs) != 0 {
		t.Errorf("blobs %v", blobs)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
