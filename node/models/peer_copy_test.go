package models

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/node/models/gguf"
)

func TestCopyFromPeersBetweenStores(t *testing.T) {
	var sources []PeerSource
	var want PeerModel
	for i := range 3 {
		s := peerStore(t)
		put(t, s, tiny())
		if _, err := s.Create("m:1", "", map[string]string{"m.gguf": "sha256:" + sum(tiny())}); err != nil {
			t.Fatal(err)
		}
		offers, err := s.Offers(context.Background())
		if err != nil || len(offers) != 1 {
			t.Fatal(offers, err)
		}
		want = offers[0]
		sources = append(sources, storeNode{fmt.Sprint("box-", i), s})
	}
	s := peerStore(t)
	var steps []Progress
	m, err := s.CopyFromPeers(context.Background(), want, sources, func(p Progress) { steps = append(steps, p) })
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "m:1" || m.Digest != sum(tiny()) || m.Source != Own || m.Size != int64(len(tiny())) {
		t.Errorf("got %+v", m)
	}
	whole(t, s, "m:1", tiny())
	if last := steps[len(steps)-1]; last.Status != "success" {
		t.Errorf("steps %v", steps)
	}
	// It can be given on at once, and needs nobody the next time.
	if made, err := s.keptManifest(want.Digest); err != nil || len(made.Chunks) != len(listOf(tiny()).Chunks) {
		t.Errorf("chunk list of %d chunks, %v", len(made.Chunks), err)
	}
	if _, err := s.CopyFromPeers(context.Background(), want, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestCopyUsesAll: chunks come from all nodes, each once.
func TestCopyUsesAll(t *testing.T) {
	s := peerStore(t)
	nodes := []*node{honest(t, "a", tiny()), honest(t, "b", tiny()), honest(t, "c", tiny())}
	if _, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{nodes[0], nodes[1], nodes[2]}, nil); err != nil {
		t.Fatal(err)
	}
	whole(t, s, "m", tiny())
	total := 0
	for _, n := range nodes {
		if n.asked() == 0 {
			t.Errorf("%s was not asked", n.name)
		}
		total += n.asked()
	}
	if want := len(listOf(tiny()).Chunks); total != want {
		t.Errorf("%d chunks were fetched, there are %d", total, want)
	}
}

// TestCopyFromBadPeersOnly: each way to fail is named, with the node, and leaves
// nothing that can be seen.
func TestCopyFromBadPeersOnly(t *testing.T) {
	for name, vice := range vices {
		t.Run(name, func(t *testing.T) {
			s := peerStore(t)
			bad := honest(t, "box-"+name, tiny()).with(func(n *node) { vice.spoil(n, tiny()) })
			_, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{bad}, nil)
			var peers *PeersError
			if !errors.As(err, &peers) || !errors.Is(err, vice.want) || !strings.Contains(err.Error(), "box-"+name+": ") {
				t.Errorf("got %v, want %v of box-%s", err, vice.want, name)
			}
			noPath(t, err)
			nothing(t, s)
			if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		s := peerStore(t)
		_, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), nil, nil)
		if err == nil || !strings.Contains(err.Error(), "no other node has it") {
			t.Errorf("got %v", err)
		}
		nothing(t, s)
	})
}

// TestCopyWithBadPeers: one good node is enough, whatever the others do, and
// wherever in the list it is.
func TestCopyWithBadPeers(t *testing.T) {
	for name, vice := range vices {
		for place := range 3 {
			t.Run(fmt.Sprint(name, "/", place), func(t *testing.T) {
				t.Parallel()
				s := peerStore(t)
				var sources []PeerSource
				for i := range 3 {
					n := honest(t, fmt.Sprint("box-", i), tiny())
					if i != place {
						vice.spoil(n, tiny())
					}
					sources = append(sources, n)
				}
				if _, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), sources, nil); err != nil {
					t.Fatal(err)
				}
				whole(t, s, "m", tiny())
			})
		}
	}
}

// TestCopyFromFlakyPeers: nodes that fail now and then are used again later.
func TestCopyFromFlakyPeers(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	s := peerStore(t)
	var sources []PeerSource
	for i := range 3 {
		n := honest(t, fmt.Sprint("box-", i), tiny())
		good := n.open
		n.open = func(ctx context.Context, from, length int64) (io.ReadCloser, error) {
			switch draw(6) {
			case 0:
				return nil, errGone
			case 1:
				return io.NopCloser(bytes.NewReader(tiny()[from : from+length/3])), nil
			}
			return good(ctx, from, length)
		}
		sources = append(sources, n)
	}
	if _, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), sources, nil); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	whole(t, s, "m", tiny())
}

// TestCopyHangingPeer: the last chunks do not wait for a node that does not
// answer, and it is left alone.
func TestCopyHangingPeer(t *testing.T) {
	s := peerStore(t)
	s.peers.stall = time.Minute
	slow := honest(t, "slow", tiny()).with(func(n *node) { vices["hangs"].spoil(n, tiny()) })
	slower := honest(t, "slower", tiny()).with(func(n *node) { vices["hangs"].spoil(n, tiny()) })
	start := time.Now()
	if _, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{slow, slower, honest(t, "fast", tiny())}, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := slow.asked(); got > 2 {
		t.Errorf("%d chunks were asked of the slow node, want one and perhaps one that is overdue", got)
	}
	whole(t, s, "m", tiny())
}

// TestCopyResumes cancels copies at random moments, damages what is left as a
// crash might, and opens the store anew, until a copy gets through.
func TestCopyResumes(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "models")
	var fetched atomic.Int64
	chunks, runs := int64(len(listOf(tiny()).Chunks)), 0
	for done := false; !done; runs++ {
		if runs > 200 {
			t.Fatalf("seed %d: not done after %d runs", seed, runs)
		}
		s, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		s.pulls.delay = func(int) time.Duration { return 0 }
		ctx, cancel := context.WithCancel(context.Background())
		after := rng.Int64N(8)
		var begun atomic.Int64
		var sources []PeerSource
		for i := range 3 {
			n := honest(t, fmt.Sprint("box-", i), tiny())
			good := n.open
			n.open = func(c context.Context, from, length int64) (io.ReadCloser, error) {
				if begun.Add(1) > after {
					cancel()
					<-c.Done()
					return nil, c.Err()
				}
				fetched.Add(1)
				return good(c, from, length)
			}
			sources = append(sources, n)
		}
		_, err = s.CopyFromPeers(ctx, offer("m", tiny()), sources, nil)
		cancel()
		if err == nil {
			done = true
			whole(t, s, "m", tiny())
		} else if !errors.Is(err, context.Canceled) {
			t.Fatalf("seed %d: %v", seed, err)
		} else if got := names(t, s); got != "" && got != "m" {
			t.Errorf("seed %d: offered %s", seed, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if !done {
			damagePart(t, rng, filepath.Join(dir, "partial", "copy-"+sum(tiny())))
		}
	}
	if runs < 4 { // 7 chunks at most in each
		t.Errorf("seed %d: it took only %d runs", seed, runs)
	}
	// What is fetched again is what was on its way, and the one chunk that each
	// damage takes.
	if most := chunks + int64(runs)*(maxFetches+2); fetched.Load() > most {
		t.Errorf("seed %d: %d chunks were fetched in %d runs, at most %d should be", seed, fetched.Load(), runs, most)
	}
}

// damagePart does to a partial file what a crash may do.
func damagePart(t *testing.T, rng *rand.Rand, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return
	}
	at := rng.Int64N(info.Size())
	switch rng.IntN(4) {
	case 0: // bytes that never reached the disk
		_, err = f.WriteAt(make([]byte, min(100, info.Size()-at)), at)
	case 1:
		err = f.Truncate(max(at, info.Size()-testChunk))
	case 2: // too long
		_, err = f.WriteAt([]byte("x"), int64(len(tiny()))+10)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCopyCancelKeepsPart: nothing is lost if a copy ends before it has begun.
func TestCopyCancelKeepsPart(t *testing.T) {
	s := peerStore(t)
	part := filepath.Join(s.cfg.Dir, "partial", "copy-"+sum(tiny()))
	write(t, part, tiny()[:5*testChunk])
	ctx, cancel := context.WithCancel(context.Background())
	n := honest(t, "a", tiny()).with(func(n *node) {
		n.manifest = func(ctx context.Context) (Manifest, error) {
			cancel()
			<-ctx.Done()
			return Manifest{}, ctx.Err()
		}
	})
	if _, err := s.CopyFromPeers(ctx, offer("m", tiny()), []PeerSource{n}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	good := honest(t, "b", tiny())
	if _, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{good}, nil); err != nil {
		t.Fatal(err)
	}
	if want := len(listOf(tiny()).Chunks) - 5; good.asked() != want {
		t.Errorf("%d chunks were fetched, want %d", good.asked(), want)
	}
}

// TestCopyShared: callers that want the same get one copy.
func TestCopyShared(t *testing.T) {
	s := peerStore(t)
	n := honest(t, "a", tiny())
	begin := make(chan struct{})
	n.manifest = func(context.Context) (Manifest, error) { <-begin; return listOf(tiny()), nil }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{n}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "8 callers", func() bool {
		s.pulls.mu.Lock()
		defer s.pulls.mu.Unlock()
		for _, tr := range s.pulls.running {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			return tr.waiters == 8
		}
		return false
	})
	close(begin)
	wg.Wait()
	if want := len(listOf(tiny()).Chunks); n.asked() != want {
		t.Errorf("%d chunks were fetched, want %d", n.asked(), want)
	}
	whole(t, s, "m", tiny())
}

// TestCopySharedFailure: a caller whose nodes are others than those that failed
// gets its own copy.
func TestCopySharedFailure(t *testing.T) {
	s := peerStore(t)
	asked, fail := make(chan struct{}), make(chan struct{})
	var once sync.Once
	bad := honest(t, "bad", tiny()).with(func(n *node) {
		n.manifest = func(context.Context) (Manifest, error) {
			once.Do(func() { close(asked) })
			<-fail
			return Manifest{}, errGone
		}
	})
	first := make(chan error)
	go func() {
		_, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{bad}, nil)
		first <- err
	}()
	<-asked
	second := make(chan error)
	go func() {
		_, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{honest(t, "good", tiny())}, nil)
		second <- err
	}()
	until(t, "two callers", func() bool {
		s.pulls.mu.Lock()
		defer s.pulls.mu.Unlock()
		for _, tr := range s.pulls.running {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			return tr.waiters == 2
		}
		return false
	})
	close(fail)
	if err := <-first; !errors.Is(err, errGone) {
		t.Errorf("first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("second: %v", err)
	}
	whole(t, s, "m", tiny())
}

func TestCopyWithoutRoom(t *testing.T) {
	for name, free := range map[string]func(written int64) int64{
		"from the start": func(int64) int64 { return reserveBytes + 1000 },
		"later":          func(calls int64) int64 { return reserveBytes + int64(len(tiny())) - calls*int64(len(tiny()))/3 },
	} {
		t.Run(name, func(t *testing.T) {
			s := peerStore(t)
			var calls atomic.Int64
			s.free = func(string) (int64, error) { return free(calls.Add(1) - 1), nil }
			_, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{honest(t, "a", tiny())}, nil)
			var full *SpaceError
			if !errors.As(err, &full) {
				t.Errorf("got %v", err)
			}
			nothing(t, s)
		})
	}
}

func TestCloseEndsCopy(t *testing.T) {
	s := peerStore(t)
	asked := make(chan struct{})
	n := honest(t, "a", tiny()).with(func(n *node) {
		n.manifest = func(ctx context.Context) (Manifest, error) {
			close(asked)
			<-ctx.Done()
			return Manifest{}, ctx.Err()
		}
	})
	result := make(chan error)
	go func() {
		_, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), []PeerSource{n}, nil)
		result <- err
	}()
	<-asked
	s.Close()
	if err := <-result; !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
}

// TestCopyRefused: a file whose digest is right and whose header is not.
func TestCopyRefused(t *testing.T) {
	bad := bytes.Clone(tiny())
	copy(bad[bytes.Index(bad, []byte("llama.block_count"))+len("llama.block_count")+4:], []byte{0xff, 0xff, 0xff, 0xff})
	s := peerStore(t)
	_, err := s.CopyFromPeers(context.Background(), offer("m", bad), []PeerSource{honest(t, "a", bad)}, nil)
	var refused *gguf.FormatError
	if !errors.As(err, &refused) || refused.Field != "llama.block_count" {
		t.Errorf("got %v", err)
	}
	nothing(t, s)
	if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCopyNames(t *testing.T) {
	s := peerStore(t)
	copyOf := func(want PeerModel, data []byte) error {
		_, err := s.CopyFromPeers(context.Background(), want, []PeerSource{honest(t, "a", data)}, nil)
		return err
	}
	old := offer("m", tiny())
	if err := copyOf(old, tiny()); err != nil {
		t.Fatal(err)
	}
	// The same file under another name needs no transfer.
	if _, err := s.CopyFromPeers(context.Background(), offer("again", tiny()), nil, nil); err != nil {
		t.Error(err)
	}
	// Another file of the same origin is an update, one of another is a mistake.
	strange := offer("m", other())
	strange.Origin = ""
	if err := copyOf(strange, other()); err == nil || !strings.Contains(err.Error(), "delete it first") {
		t.Errorf("got %v", err)
	}
	whole(t, s, "m", tiny())
	if err := copyOf(offer("m", other()), other()); err != nil {
		t.Error(err)
	}
	whole(t, s, "m", other())
	whole(t, s, "again", tiny())
	for _, bad := range []PeerModel{
		{Name: "../x", Digest: sum(tiny()), Size: 1, Kind: KindChat},
		{Name: "m", Digest: "../x", Size: 1, Kind: KindChat},
		{Name: "m", Digest: "", Size: 1, Kind: KindChat},
		{Name: "m", Digest: sum(tiny()), Size: 0, Kind: KindChat},
		{Name: "m", Digest: sum(tiny()), Size: maxBlob + 1, Kind: KindChat},
		{Name: "m", Digest: sum(tiny()), Size: 1, Kind: "x"},
		{Name: "m", Digest: sum(tiny()), Size: 1, Kind: KindChat, Origin: "a\nb"},
		{Name: "m", Digest: sum(tiny()), Size: 1, Kind: KindChat, License: strings.Repeat("x", 600)},
	} {
		if _, err := s.CopyFromPeers(context.Background(), bad, nil, nil); !errors.Is(err, ErrBadName) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestCopyInPlace: a file of another program's store is used where it is.
func TestCopyInPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "here.gguf")
	write(t, path, tiny())
	s, _ := newStore(t, func(c *Config) { c.FileDirs = []string{dir} })
	if _, err := s.Digest(context.Background(), "here"); err != nil {
		t.Fatal(err)
	}
	m, err := s.CopyFromPeers(context.Background(), offer("m", tiny()), nil, nil)
	if err != nil || m.Path != path {
		t.Errorf("got %+v, %v", m, err)
	}
}
