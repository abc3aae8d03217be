package kvstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

// bigShape makes blocks that are larger than a generation of a small ring.
var bigShape = block.Shape{Layers: []block.Layer{{K: block.Row{Type: block.F16, Values: 1 << 19}, V: block.Row{Type: block.F16, Values: 1 << 19}}}}

// The store with its real disk tier: blocks and pins come back after a restart, one
// that is damaged on disk is a miss, and a folder in use is refused.
func TestStoreOnARing(t *testing.T) {
	dir := t.TempDir()
	o := kvstore.Options{Dir: dir, DiskBytes: 64 << 20, RAMBytes: ramFor(200)}
	s := open(t, o)
	hs := headers(1, 150)
	mustPut(t, s, hs)
	if err := s.Pin(hs[9].ID); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Disk.Blocks != 150 || st.Disk.Bytes == 0 || st.Disk.Budget != 64<<20 || st.Generations == 0 {
		t.Errorf("%+v", st)
	}
	closeStore(t, s)
	s = open(t, o)
	if st := s.Stats(); st.Disk.Blocks != 150 || st.RAM.Blocks != 0 || st.Pins != 1 {
		t.Errorf("%+v", st)
	}
	wantRun(t, s, hs, 150, 150)
	closeStore(t, s)
}

func TestOpenWithTooSmallADisk(t *testing.T) {
	dir := t.TempDir()
	if s, err := kvstore.Open(kvstore.Options{Dir: dir, DiskBytes: 1, RAMBytes: 1 << 20}); err == nil {
		t.Errorf("opened: %v", s)
	}
	closeStore(t, open(t, kvstore.Options{Dir: dir, RAMBytes: 1 << 20})) // the lock is free again
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := kvstore.Open(kvstore.Options{Dir: blocked, RAMBytes: 1 << 20}); err == nil {
		t.Errorf("opened: %v", s)
	}
}

// A block that is too large for the disk stays in RAM and does not keep others from
// being written.
func TestBlocksThatAreTooLargeForTheDisk(t *testing.T) {
	s, err := kvstore.Open(kvstore.Options{Dir: t.TempDir(), DiskBytes: 32 << 20, RAMBytes: 32 << 20,
		Shapes: func(f block.Fingerprint) (block.Shape, bool) { return testShape, f == testPrint }})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	big := headers(2, 1)[0]
	big.Fingerprint[0]++
	big.PayloadBytes = testCount * bigShape.Bytes()
	w, ok := s.Reserve(big)
	if !ok {
		t.Fatal("refused")
	}
	clear(w.Bytes())
	w.Commit()
	mustPut(t, s, headers(1, 5))
	if st := s.Stats(); st.RAM.Blocks != 6 || st.Disk.Blocks != 5 || st.Disk.Refusals != 1 || st.Queue.Errors != 0 {
		t.Errorf("%+v", st)
	}
}
