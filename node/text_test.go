package node

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTextAssemblerHoldsBackWhatIsNotCertain(t *testing.T) {
	tests := []struct {
		name    string
		stops   []string
		pieces  []string
		want    []string // text after each piece, then after flush
		stopped bool
	}{
		{"plain text passes", nil, []string{"a", "bc"}, []string{"a", "bc", ""}, false},
		{"an emoji over four tokens", nil, []string{"\xf0", "\x9f", "\x99", "\x82!"}, []string{"", "", "", "🙂!", ""}, false},
		{"a cut character is dropped", nil, []string{"x\xe6\x97"}, []string{"x", ""}, false},
		{"bytes that are no UTF-8 are dropped", nil, []string{"a\xffb", "\x80c"}, []string{"ab", "c", ""}, false},
		{"a stop string in one piece", []string{"END"}, []string{"one END two"}, []string{"one ", ""}, true},
		{"a stop string over three", []string{"END"}, []string{"one E", "N", "D two"}, []string{"one ", "", "", ""}, true},
		{"what only looked like one comes later", []string{"END"}, []string{"E", "NO"}, []string{"", "ENO", ""}, false},
		{"the earliest of two wins", []string{"cd", "bc"}, []string{"abcd"}, []string{"a", ""}, true},
		{"overlapping starts", []string{"aab"}, []string{"aa", "aab"}, []string{"", "aa", ""}, true},
		{"held text comes at the end", []string{"END"}, []string{"x EN"}, []string{"x ", "EN"}, false},
		{"a stop string of several characters", []string{"日本"}, []string{"a\xe6\x97", "\xa5\xe6\x9c", "\xac"}, []string{"a", "", "", ""}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newTextAssembler(tt.stops)
			var stopped bool
			for i, piece := range tt.pieces {
				got, s := a.push([]byte(piece))
				stopped = stopped || s
				if got != tt.want[i] {
					t.Errorf("after piece %d: got %q, want %q", i, got, tt.want[i])
				}
			}
			if got := a.flush(); got != tt.want[len(tt.pieces)] {
				t.Errorf("at the end: got %q, want %q", got, tt.want[len(tt.pieces)])
			}
			if stopped != tt.stopped {
				t.Errorf("stopped = %t, want %t", stopped, tt.stopped)
			}
		})
	}
}

// However a text is cut into pieces, what comes out is the text before the first
// stop string.
func TestTextAssemblerDoesNotDependOnTheCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	stops := []string{"aab", "ba日", "bbbb"}
	alphabet := []string{"a", "b", "日", "🙂", "c"}
	for range 3000 {
		var whole strings.Builder
		for range rng.IntN(24) {
			whole.WriteString(alphabet[rng.IntN(len(alphabet))])
		}
		a := newTextAssembler(stops)
		var got strings.Builder
		for rest := whole.String(); rest != ""; {
			n := 1 + rng.IntN(min(4, len(rest)))
			text, _ := a.push([]byte(rest[:n]))
			got.WriteString(text)
			rest = rest[n:]
		}
		got.WriteString(a.flush())
		if first := earliestStop(whole.String(), stops); got.String() != first {
			t.Fatalf("%q: got %q, want %q", whole.String(), got.String(), first)
		}
	}
}

func earliestStop(s string, stops []string) string {
	for i := range s {
		for _, stop := range stops {
			if strings.HasPrefix(s[i:], stop) {
				return s[:i]
			}
		}
	}
	return s
}
