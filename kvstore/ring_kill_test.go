package kvstore

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/kvstore/block"
)

const killBudget = 32 << 20

func killMaker() ringMaker { return newRingMaker(4, 64) } // 64 KiB

// TestRingChild is no test: it is the process that TestRingSurvivesKill kills.
func TestRingChild(t *testing.T) {
	dir := os.Getenv("KV_RING_CHILD")
	if dir == "" {
		t.Skip("runs as a child of TestRingSurvivesKill")
	}
	m := killMaker()
	r, err := OpenRing(dir, RingOptions{Bytes: killBudget, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("open", checkAll(t, m, r))
	seed, _ := strconv.ParseUint(os.Getenv("KV_RING_SEED"), 10, 64)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for {
		batch := m.chain(rnd.Int32N(1<<30), 1+rnd.IntN(6))
		if err := r.Put(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
		last := batch[len(batch)-1].Header.ID
		fmt.Println("put", last)
		if rnd.IntN(4) == 0 {
			r.Touch(ringIDs(batch))
		}
		if rnd.IntN(16) == 0 {
			r.Forget(last)
			fmt.Println("forgot", last)
		}
	}
}

// checkAll verifies everything that Walk shows and counts what is found.
func checkAll(t *testing.T, m ringMaker, r *Ring) (found int) {
	t.Helper()
	r.Walk(func(h block.Header, _ int64) bool {
		if m.verify(t, r, h.ID) {
			found++
		}
		return true
	})
	return found
}

// TestRingSurvivesKill kills a process that writes, at random moments, KV_KILLS
// times. Afterwards the ring opens, and what is found is right.
func TestRingSurvivesKill(t *testing.T) {
	t.Parallel()
	kills := 10
	if s := os.Getenv("KV_KILLS"); s != "" {
		kills, _ = strconv.Atoi(s)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KV_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("repeat with KV_SEED=%d KV_KILLS=%d", seed, kills)
	rnd := rand.New(rand.NewPCG(seed, 2))
	dir := ringDir(t)
	m := killMaker()
	var acknowledged, kept, aside int
	for i := range kills {
		last, forgotten := runAndKill(t, dir, seed+uint64(i), rnd)
		if n := folderBytes(dir); n > killBudget {
			t.Errorf("kill %d: %d bytes on disk; the budget is %d", i, n, killBudget)
		}
		if rnd.IntN(3) == 0 {
			continue // the next process opens what this one has left
		}
		r, err := OpenRing(dir, RingOptions{Bytes: killBudget, Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		found := checkAll(t, m, r)
		if n := m.bad.Load(); n > 0 {
			t.Errorf("kill %d: %d blocks are damaged, %d are right", i, n, found)
		}
		if !last.IsZero() {
			acknowledged++
			if m.verify(t, r, last) {
				kept++
			}
		}
		if _, held := r.index.get(forgotten); held {
			t.Errorf("kill %d: a forgotten block came back", i)
		}
		aside += int(r.Stats().SetAside)
		closeRing(t, r)
	}
	t.Logf("the last block that was written was there after %d of %d kills; %d generations set aside", kept, acknowledged, aside)
	if acknowledged > 0 && kept == 0 {
		t.Error("nothing ever survives")
	}
}

// runAndKill runs a child until a random moment and returns the last block that it
// said it had written, and the last that it had forgotten.
func runAndKill(t *testing.T, dir string, seed uint64, rnd *rand.Rand) (last, forgotten block.ID) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRingChild$", "-test.v")
	cmd.Env = append(os.Environ(), "KV_RING_CHILD="+dir, fmt.Sprintf("KV_RING_SEED=%d", seed))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Some are killed while they open the ring, most while they write.
	killIn := func(most int) {
		time.AfterFunc(time.Duration(rnd.IntN(most))*time.Millisecond, func() { cmd.Process.Kill() })
	}
	early := rnd.IntN(4) == 0
	if early {
		killIn(400)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch {
		case word == "open" && !early:
			killIn(400)
		case word == "put":
			last = parseRingID(rest)
		case word == "forgot":
			forgotten = parseRingID(rest)
			if forgotten == last {
				last = block.ID{}
			}
		case strings.Contains(lines.Text(), "FAIL"), strings.Contains(lines.Text(), "_test.go"), strings.Contains(lines.Text(), "panic"):
			rest, _ := io.ReadAll(out)
			t.Fatalf("the child fails: %s\n%s", lines.Text(), rest)
		}
	}
	cmd.Wait()
	return last, forgotten
}

// parseRingID is zero for a line that was cut.
func parseRingID(s string) (id block.ID) {
	if b, err := hex.DecodeString(s); err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}
