package engine_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// shelf keeps blocks as a store would: by all tokens up to their end.
type shelf struct {
	size  int
	late  chan struct{} // what is kept is at hand when it is closed; nil: at once
	inUse atomic.Int32

	mu   sync.Mutex
	rows map[string][]byte
}

func newShelf(size int) *shelf { return &shelf{size: size, rows: map[string][]byte{}} }

// key names the block that ends at the end of tokens.
func key(salt string, tokens []engine.Token) string {
	return salt + "|" + enginetest.Vocab{}.Text(tokens)
}

// shelved is one sequence's use of a shelf.
type shelved struct {
	*shelf
	tokens []engine.Token
	salt   string
	ready  atomic.Bool
	room   []byte
	key    string
	closed atomic.Bool
	ended  chan struct{}
	wait   sync.WaitGroup
}

func (s *shelf) open(tokens []engine.Token, salt string) *shelved {
	s.inUse.Add(1)
	return &shelved{shelf: s, tokens: tokens, salt: salt, ended: make(chan struct{})}
}

func (b *shelved) Start(wake func()) {
	if b.late == nil {
		b.ready.Store(true)
		return
	}
	b.wait.Go(func() {
		select {
		case <-b.late:
			b.ready.Store(true)
			wake()
		case <-b.ended:
		}
	})
}

func (b *shelved) Restorable() ([]engine.Rows, int, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows, tokens := b.held()
	if !b.ready.Load() {
		return nil, 0, tokens
	}
	return rows, tokens, 0
}

// held are the rows of the leading blocks that are kept.
func (b *shelved) held() (rows []engine.Rows, tokens int) {
	for end := b.size; end <= len(b.tokens); end += b.size {
		data, ok := b.rows[key(b.salt, b.tokens[:end])]
		if !ok {
			break
		}
		rows, tokens = append(rows, engine.Rows{Tokens: b.size, Data: data}), end
	}
	return rows, tokens
}

func (b *shelved) Restored(int) {}

func (b *shelved) Size() int { return b.size }

func (b *shelved) Room(tokens []engine.Token, from, to int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.key = key(b.salt, tokens[:to])
	if b.rows[b.key] != nil {
		return nil
	}
	b.room = make([]byte, (to-from)*32)
	return b.room
}

func (b *shelved) Kept(ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok {
		b.rows[b.key] = b.room
	}
}

func (b *shelved) Close() {
	if !b.closed.Swap(true) {
		close(b.ended)
		b.inUse.Add(-1)
	}
}

// TestKept computes, forgets and restores: nothing that was kept is computed
// again, and the text is that of a cold run.
func TestKept(t *testing.T) {
	o := enginetest.Options{Sequences: 1}
	kept := newShelf(16)
	long := prompt(100)
	for i, turn := range []struct {
		text     string
		salt     string
		restored int
	}{
		{text: long},
		{text: long, restored: 96},
		{text: long[:50] + "?", restored: 48},
		{text: long[:49], restored: 48},
		{text: long[:48], restored: 32},
		{text: long, salt: "other"},
		{text: long[:15]},
		{text: "#" + long},
	} {
		e, _ := start(t, o, engine.Config{Parallel: 1})
		r := engine.Request{Tokens: words(t, turn.text), MaxTokens: 40, Salt: turn.salt}
		want := alone(t, o, r)
		r.Blocks = kept.open(r.Tokens, r.Salt)
		text, result := ask(t, e, r)
		if text != want || result.RestoredTokens != turn.restored || result.CachedTokens != turn.restored {
			t.Errorf("turn %d: %q, alone %q; %+v, want %d restored", i, text, want, result, turn.restored)
		}
		if st := e.Stats(); st.Restored != int64(turn.restored) || st.Computed != int64(len(turn.text)-turn.restored) {
			t.Errorf("turn %d: %+v", i, st)
		}
	}
	// The blocks of answers are kept, too: 100 + 39 tokens have rows.
	r := engine.Request{Tokens: words(t, long), MaxTokens: 40}
	talk := append(slices.Clone(r.Tokens), words(t, alone(t, o, r)+" And then?")...)
	e, _ := start(t, o, engine.Config{Parallel: 1})
	if _, result := ask(t, e, engine.Request{Tokens: talk, MaxTokens: 1, Blocks: kept.open(talk, "")}); result.RestoredTokens != 128 {
		t.Errorf("%+v, want 128 tokens of prompt and answer restored", result)
	}
	if n := kept.inUse.Load(); n != 0 {
		t.Errorf("%d uses were not closed", n)
	}
}

// TestResidentBeatsKept: what lies in the engine already is not restored.
func TestResidentBeatsKept(t *testing.T) {
	e, _ := start(t, enginetest.Options{}, engine.Config{Parallel: 1})
	kept := newShelf(16)
	for i, restored := range []int{0, 0} {
		r := engine.Request{Tokens: words(t, prompt(100)), MaxTokens: 5, Blocks: kept.open(words(t, prompt(100)), "")}
		if _, result := ask(t, e, r); result.RestoredTokens != restored || result.CachedTokens != i*99 {
			t.Errorf("turn %d: %+v", i, result)
		}
	}
}

// TestFetching: while kept rows are on their way the sequence waits, others go on.
func TestFetching(t *testing.T) {
	o := enginetest.Options{Sequences: 2}
	kept := newShelf(16)
	r := engine.Request{Tokens: words(t, prompt(100)), MaxTokens: 10}
	first, _ := start(t, o, engine.Config{Parallel: 1})
	withBlocks := r
	for _, salt := range []string{"", "x"} {
		withBlocks.Salt, withBlocks.Blocks = salt, kept.open(r.Tokens, salt)
		ask(t, first, withBlocks)
	}
	withBlocks.Salt = ""

	kept.late = make(chan struct{})
	e, _ := stepped(t, o, engine.Config{Parallel: 2})
	b := kept.open(r.Tokens, "")
	withBlocks.Blocks = b
	waiting := submit(t, e, withBlocks)
	other := submit(t, e, engine.Request{Tokens: words(t, "other"), MaxTokens: 10})
	turns(t, e, -1)
	if text := read(t, other); len(text) != 10 || waiting.Result().Generated != 0 {
		t.Errorf("%q; %+v", text, waiting.Result())
	}
	close(kept.late)
	b.wait.Wait()
	turns(t, e, -1)
	if text, want := read(t, waiting), alone(t, o, r); text != want || waiting.Result().RestoredTokens != 96 {
		t.Errorf("%q, alone %q; %+v", text, want, waiting.Result())
	}

	kept.late = make(chan struct{}) // what is resident is not waited for
	withBlocks.Blocks = kept.open(r.Tokens, "")
	resident := submit(t, e, withBlocks)
	turns(t, e, -1)
	if read(t, resident); resident.Result().RestoredTokens != 0 || resident.Result().CachedTokens != 99 {
		t.Errorf("%+v", resident.Result())
	}
	withBlocks.Salt, withBlocks.Blocks = "x", kept.open(r.Tokens, "x") // one that is cancelled while it waits
	gone := submit(t, e, withBlocks)
	turns(t, e, 2)
	if gone.Result().Generated != 0 || gone.Position() != 0 {
		t.Errorf("it does not wait for what is kept: %+v", gone.Result())
	}
	gone.Cancel()
	turns(t, e, -1)
	gone.Wait()
	if n := kept.inUse.Load(); n != 0 {
		t.Errorf("%d uses were not closed", n)
	}
}

// TestRestoreFails: rows that the backend does not take are computed.
func TestRestoreFails(t *testing.T) {
	kept := newShelf(16)
	r := engine.Request{Label: "r", Tokens: words(t, prompt(100)), MaxTokens: 10}
	for i := range 2 {
		failed := 0
		o := enginetest.Options{Sequences: 1, FailImport: func(int) error { return errors.New("broken") }}
		e, _ := start(t, o, engine.Config{Parallel: 1, Hooks: engine.Hooks{KVFailed: func(string, error) { failed++ }}})
		with := r
		with.Blocks = kept.open(r.Tokens, "")
		text, result := ask(t, e, with)
		if want := alone(t, enginetest.Options{}, r); text != want || result.RestoredTokens != 0 || failed != i {
			t.Errorf("run %d: %q, alone %q; %+v, %d failures", i, text, want, result, failed)
		}
	}
}

// TestRestoreInPieces: a restore beside a stream goes on from step to step, while the
// stream gets a token in each; broken off in the middle, what is there stays, and
// what fails in the middle is computed.
func TestRestoreInPieces(t *testing.T) {
	long := prompt(161)
	for _, end := range []string{"done", "cancelled", "failed"} {
		t.Run(end, func(t *testing.T) {
			kept, now, imports := newShelf(16), frozen(), 0
			r := engine.Request{Label: "restored", Tokens: words(t, long), MaxTokens: 10}
			first, _ := start(t, enginetest.Options{}, engine.Config{Parallel: 1})
			with := r
			with.Blocks = kept.open(r.Tokens, "")
			want, _ := ask(t, first, with)

			o := enginetest.Options{Sequences: 2, FailImport: func(int) error {
				imports++
				now = now.Add(900 * time.Microsecond)
				if end == "failed" && imports == 5 {
					return errors.New("broken")
				}
				return nil
			}}
			e, _ := stepped(t, o, engine.Config{Parallel: 2, Now: func() time.Time { return now }})
			stream := submit(t, e, engine.Request{Label: "stream", Tokens: words(t, "stream"), MaxTokens: 100})
			turns(t, e, 3)
			with.Blocks = kept.open(r.Tokens, "")
			restored := submit(t, e, with)
			for i := range 3 {
				before := stream.Result().Generated
				turns(t, e, 1)
				if got := stream.Result().Generated - before; got != 1 || imports > 3*(i+1) {
					t.Fatalf("turn %d: the stream got %d tokens, %d imports so far", i, got, imports)
				}
			}
			if end == "cancelled" {
				restored.Cancel()
				turns(t, e, 1)
				restored.Wait()
				restored = submit(t, e, r) // without blocks
			}
			turns(t, e, -1)
			if text := read(t, restored); text != want {
				t.Errorf("%q, computed %q", text, want)
			}
			result, st := restored.Result(), e.Stats()
			most := map[string]int{"done": 160, "cancelled": 144, "failed": 0}[end]
			if n := result.CachedTokens; n > most || n == 0 && most > 0 || end == "done" && (n != 160 || st.Restored != 160) {
				t.Errorf("%+v, want at most %d cached; %+v", result, most, st)
			}
			if want := alone(t, enginetest.Options{}, engine.Request{Tokens: words(t, "stream"), MaxTokens: 100}); read(t, stream) != want {
				t.Error("the stream got another text")
			}
		})
	}
}

// TestParked: a sequence that nobody reads gives its slot to one that waits, and
// goes on when it is read.
func TestParked(t *testing.T) {
	for name, buffer := range map[string]int{"buffer full": 8, "buffer not full": 1000} {
		t.Run(name, func(t *testing.T) {
			now := frozen()
			var parked []string
			o := enginetest.Options{Sequences: 1}
			e, _ := stepped(t, o, engine.Config{Parallel: 1, OutputBuffer: buffer, Now: func() time.Time { return now }, Hooks: engine.Hooks{
				Parked: func(l string, _ int) { parked = append(parked, l) }}})
			r := engine.Request{Label: "stalled", Tokens: words(t, "slow"), MaxTokens: 60}
			stalled := submit(t, e, r)
			turns(t, e, 12)
			other := submit(t, e, engine.Request{Label: "other", Tokens: words(t, "other"), MaxTokens: 8})
			turns(t, e, 3)
			if buffer > 8 && len(parked) > 0 {
				t.Fatal("parked before it stalled")
			}
			now = now.Add(3 * time.Second)
			for other.Result().Reason == "" {
				turns(t, e, 1)
			}
			if text := read(t, other); len(text) != 8 || !slices.Equal(parked, []string{"stalled"}) {
				t.Fatalf("the other says %q, parked: %v", text, parked)
			}
			turns(t, e, -1)
			if st := e.Stats(); st.Parked != 1 || st.Running != 0 || st.Queued != 0 {
				t.Errorf("%+v", st)
			}
			var text strings.Builder
			for stalled.Result().Reason == "" || text.Len() < 60 {
				turns(t, e, 1)
				text.Write(next(t, stalled).Piece)
			}
			if want := alone(t, o, r); text.String() != want {
				t.Errorf("got %q, alone %q", text.String(), want)
			}
		})
	}
}

// TestParkedEnds cancels a parked sequence, and closes an engine with one.
func TestParkedEnds(t *testing.T) {
	for name, end := range map[string]func(*engine.Engine, *engine.Sequence){
		"cancelled": func(_ *engine.Engine, s *engine.Sequence) { s.Cancel() },
		"closed":    func(e *engine.Engine, _ *engine.Sequence) { e.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			e, b := stepped(t, enginetest.Options{}, engine.Config{Parallel: 1, OutputBuffer: 4})
			stalled := submit(t, e, engine.Request{Tokens: words(t, "slow")})
			turns(t, e, 8)
			other := submit(t, e, engine.Request{Tokens: words(t, "other"), MaxTokens: 2})
			turns(t, e, -1)
			read(t, other)
			if e.Stats().Parked != 1 {
				t.Fatalf("%+v", e.Stats())
			}
			end(e, stalled)
			turns(t, e, -1)
			stalled.Wait()
			if st := e.Stats(); st.Parked != 0 || b.Samplers() != 0 {
				t.Errorf("%+v, %d samplers", st, b.Samplers())
			}
		})
	}
}

// TestAllStalled: readers that all stop leave the engine to those that come.
func TestAllStalled(t *testing.T) {
	e, _ := start(t, enginetest.Options{}, engine.Config{Parallel: 2, OutputBuffer: 4})
	for range 5 {
		submit(t, e, engine.Request{Tokens: words(t, "slow")})
	}
	if text := read(t, submit(t, e, engine.Request{Tokens: words(t, "quick"), MaxTokens: 4})); len(text) != 4 {
		t.Errorf("got %q", text)
	}
}
