//go:build linux

package kvstore

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// heldFiles are the files below a folder that this process has open or mapped, by
// their paths from there.
func heldFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if _, file, ok := strings.Cut(line, dir+"/"); ok {
			files = append(files, strings.TrimSpace(file))
		}
	}
	for _, fd := range fileNames("/proc/self/fd") {
		// Those of other tests may be closed meanwhile.
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd)); err == nil && strings.HasPrefix(to, dir+"/") {
			files = append(files, strings.TrimPrefix(to, dir+"/"))
		}
	}
	return files
}

// A sealed generation has one descriptor and no Badger, whether this process wrote it
// or found it; one that was dropped has none.
func TestRingHoldsOneFileForEachSealedGeneration(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	chains := [][]Record{m.chain(1, 5), m.chain(2, 5), m.chain(3, 5)}
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	check := func(when string, generations int) {
		t.Helper()
		gens := r.generations()
		if len(gens) != generations {
			t.Errorf("%s: there are %d generations; wanted %d", when, len(gens), generations)
		}
		for _, g := range gens {
			if files := heldFiles(t, g.dir); !slices.Equal(files, []string{dataName}) {
				t.Errorf("%s: generation %d holds %v; wanted its data file", when, g.seq, files)
			}
		}
		for _, name := range heldFiles(t, dir) {
			if strings.HasPrefix(name, gonePrefix) {
				t.Errorf("%s: %s is held", when, name)
			}
		}
	}
	for _, chain := range chains {
		put(t, r, chain...)
		rollRing(t, r)
	}
	check("sealed", 3)
	for _, rec := range chains[1] {
		r.Forget(rec.Header.ID)
	}
	until(t, r, "a generation has gone", func() bool { return len(r.generations()) == 2 })
	check("dropped", 2)
	closeRing(t, r)
	if files := heldFiles(t, dir); len(files) > 0 {
		t.Errorf("after the end %v are held", files)
	}
	r = openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	check("opened", 2)
}
