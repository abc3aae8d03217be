package block_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"tandem/kvstore/block"
)

func tokens(r *rand.Rand, n int) []block.Token {
	out := make([]block.Token, n)
	for i := range out {
		out[i] = block.Token(r.Int32N(200_000))
	}
	return out
}

func TestChainIsNextAgainAndAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	root := testKey.Root(block.Fingerprint{1}, "tenant")
	for _, size := range []int{1, 2, 3, 16, 32, 64, 255, block.CountMax, block.CountMax + 1} {
		for _, n := range []int{0, size - 1, size, size + 1, 3*size - 1, 3 * size} {
			prompt := tokens(r, n)
			got := testKey.Chain(root, prompt, size)
			if len(got) != n/size {
				t.Fatalf("size %d, %d tokens: %d ids, want %d", size, n, len(got), n/size)
			}
			parent := root
			for i, id := range got {
				if want := testKey.Next(parent, prompt[i*size:][:size]); id != want {
					t.Fatalf("size %d, block %d: %v, want %v", size, i, id, want)
				}
				parent = id
			}
		}
	}
	for _, size := range []int{0, -1} {
		if got := testKey.Chain(root, tokens(r, 10), size); got != nil {
			t.Errorf("size %d gives %v", size, got)
		}
	}
}

// A change of one token changes the ids from its block on and none before.
func TestTokensChangeTheirIDAndAllLaterOnes(t *testing.T) {
	const size, blocks = 4, 5
	r := rand.New(rand.NewPCG(4, 4))
	root := testKey.Root(block.Fingerprint{1}, "")
	prompt := tokens(r, size*blocks)
	before := testKey.Chain(root, prompt, size)
	for i := range prompt {
		for bit := range 31 {
			changed := slices.Clone(prompt)
			changed[i] ^= 1 << bit
			after := testKey.Chain(root, changed, size)
			for j := range after {
				if same, want := after[j] == before[j], j < i/size; same != want {
					t.Fatalf("token %d, bit %d: block %d keeps its id: %t, want %t", i, bit, j, same, want)
				}
			}
		}
	}
}

func TestKeyTenantAndFingerprintChangeTheRoot(t *testing.T) {
	seen := map[block.ID]string{}
	add := func(what string, id block.ID) {
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the same root", what, other)
		}
		seen[id] = what
	}
	for _, tenant := range []string{"", "a", "b", "ab", "a\x00", "\x00a", "\x00", strings.Repeat("a", 300)} {
		for f := range 3 {
			for k := range 3 {
				add(fmt.Sprintf("tenant %q, fingerprint %d, key %d", tenant, f, k), block.Key{byte(k)}.Root(block.Fingerprint{31: byte(f)}, tenant))
			}
		}
	}
}

// What crosses from one field into the next must not give the same id.
func TestFieldsOfIDsDoNotSlide(t *testing.T) {
	f := block.Fingerprint{1}
	root := testKey.Root(f, "")
	pairs := []struct {
		name string
		a, b block.ID
	}{
		{"one block of two, two of one", testKey.Next(root, []block.Token{1, 2}), testKey.Next(testKey.Next(root, []block.Token{1}), []block.Token{2})},
		{"a zero token more", testKey.Next(root, []block.Token{1}), testKey.Next(root, []block.Token{1, 0})},
		{"no tokens, and the parent", testKey.Next(root, nil), root},
		{"the tenant is the last of the fingerprint", testKey.Root(block.Fingerprint{31: 'a'}, ""), testKey.Root(block.Fingerprint{}, "a")},
		{"a tenant that spells a block", testKey.Root(f, string(root[:])), testKey.Next(root, nil)},
		{"tokens that spell the parent", testKey.Next(block.ID{1}, []block.Token{0, 0, 0, 0}), testKey.Next(block.ID{}, []block.Token{1, 0, 0, 0})},
	}
	for _, p := range pairs {
		if p.a == p.b {
			t.Errorf("%s: both are %v", p.name, p.a)
		}
	}
}

func TestVerifyKnowsTheIDsOfItsKey(t *testing.T) {
	h, _ := sealed(1, mixed, 0, 4)
	if err := testKey.Verify(h); err != nil {
		t.Error(err)
	}
	foreign, swapped, orphan := h, h, h
	foreign.ID[15] ^= 1
	swapped.Tokens = slices.Clone(h.Tokens)
	swapped.Tokens[0], swapped.Tokens[1] = swapped.Tokens[1], swapped.Tokens[0]
	orphan.Parent[0] ^= 1
	for name, bad := range map[string]block.Header{"id": foreign, "tokens": swapped, "parent": orphan} {
		if err := testKey.Verify(bad); !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
	if err := (block.Key{}).Verify(h); err == nil {
		t.Error("another key verifies it")
	}
}

func TestKeyIsNeverPrinted(t *testing.T) {
	key := block.Key(bytes.Repeat([]byte{0xab}, 32))
	type holder struct{ Key block.Key }
	var printed strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o"} {
		fmt.Fprintf(&printed, verb+" ", key)
		fmt.Fprintf(&printed, verb+" ", &key)
		fmt.Fprintf(&printed, verb+"\n", holder{key})
	}
	text, err := json.Marshal(holder{key})
	if err != nil {
		t.Fatal(err)
	}
	printed.Write(text)
	timeless := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	slog.New(slog.NewTextHandler(&printed, timeless)).Info("x", "key", key)
	slog.New(slog.NewJSONHandler(&printed, timeless)).Info("x", "key", key)
	for _, leak := range []string{"ab", "AB", "171", "253", "10101011"} {
		if strings.Contains(printed.String(), leak) {
			t.Errorf("%q shows in %s", leak, printed.String())
		}
	}
}

func TestIDsAsText(t *testing.T) {
	id := block.ID{0xde, 0xad, 15: 0x0f}
	if got, err := block.ParseID(id.String()); err != nil || got != id {
		t.Errorf("%v becomes %v, %v", id, got, err)
	}
	f := block.Fingerprint{0xbe, 31: 0xef}
	if got, err := block.ParseFingerprint(f.String()); err != nil || got != f {
		t.Errorf("%v becomes %v, %v", f, got, err)
	}
	in := map[block.ID]block.Fingerprint{id: f}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out map[block.ID]block.Fingerprint
	if err := json.Unmarshal(text, &out); err != nil || out[id] != f {
		t.Errorf("%s becomes %v, %v", text, out, err)
	}
	for _, bad := range []string{"", "0", strings.Repeat("0", 31), strings.Repeat("0", 33), strings.Repeat("0", 64), strings.Repeat("g", 32)} {
		kept := id
		if err := kept.UnmarshalText([]byte(bad)); err == nil || kept != id {
			t.Errorf("%q is taken as an id, or spoils it: %v", bad, kept)
		}
	}
	if id.IsZero() || !(block.ID{}).IsZero() {
		t.Error("IsZero errs")
	}
}

// Averages are rounded down, so that the race detector, which drops a quarter of what
// is put into pools, does not count.
func TestHashingAllocatesOnlyTheResult(t *testing.T) {
	root := testKey.Root(block.Fingerprint{}, "")
	prompt := tokens(rand.New(rand.NewPCG(5, 5)), 3_000)
	if n := testing.AllocsPerRun(200, func() { testKey.Chain(root, prompt, 64) }); n > 1 {
		t.Errorf("Chain allocates %v times", n)
	}
	if n := testing.AllocsPerRun(200, func() { testKey.Next(root, prompt[:64]) }); n > 0 {
		t.Errorf("Next allocates %v times", n)
	}
}

// Hashers are shared: keys must not mix when many goroutines hash at once.
func TestKeysDoNotMix(t *testing.T) {
	prompt := tokens(rand.New(rand.NewPCG(9, 9)), 40)
	var keys [4]block.Key
	var want [4][]block.ID
	for i := range keys {
		keys[i] = block.Key{byte(i)}
		want[i] = keys[i].Chain(block.ID{}, prompt, 8)
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				k := (g + i) % len(keys)
				if got := keys[k].Chain(block.ID{}, prompt, 8); !slices.Equal(got, want[k]) {
					t.Errorf("key %d: %v, want %v", k, got, want[k])
				}
			}
		})
	}
	all.Wait()
}
