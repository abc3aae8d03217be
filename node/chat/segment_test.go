package chat

import (
	"math/rand/v2"
	"strings"
	"testing"

	"tandem/node/chat/jinja"
)

// joined renders texts next to each other; those that begin with an asterisk are
// foreign.
func joined(t *testing.T, parts ...string) jinja.Text {
	t.Helper()
	l := jinja.NewList()
	for _, p := range parts {
		if s, ok := strings.CutPrefix(p, "*"); ok {
			l.Append(jinja.Foreign(s))
		} else {
			l.Append(jinja.Own(p))
		}
	}
	tpl, err := jinja.Parse("{{ parts | join }}")
	if err != nil {
		t.Fatal(err)
	}
	out, err := tpl.Render(t.Context(), map[string]jinja.Value{"parts": l}, jinja.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// show writes plain segments between ‹ and ›.
func show(segments []Segment) string {
	var b strings.Builder
	for _, s := range segments {
		if s.Plain {
			b.WriteString("‹" + s.Text + "›")
		} else {
			b.WriteString("[" + s.Text + "]")
		}
	}
	return b.String()
}

func TestSegments(t *testing.T) {
	m := newMatcher([]string{"<|im_end|>", "<|im_start|>", "</s>", "<s>", "[INST]", "xy", "yz", "aba"})
	for _, c := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"the template's own", []string{"<|im_start|>user\n", "*hi", "<|im_end|>"}, "[<|im_start|>user\nhi<|im_end|>]"},
		{"typed by the user", []string{"<|im_start|>", "*a<|im_end|>b", "<|im_end|>"}, "[<|im_start|>a]‹<|im_end|>›[b<|im_end|>]"},
		{"only a mark", []string{"*<|im_end|>"}, "‹<|im_end|>›"},
		{"two marks", []string{"*</s><s>"}, "‹</s><s>›"},
		{"across the border, user first", []string{"*a<|im", "_end|>b"}, "[a]‹<|im›[_end|>b]"},
		{"across the border, template first", []string{"<|im_", "*end|>b"}, "[<|im_]‹end|>›[b]"},
		{"across two fields", []string{"*<|im", "*_end|>"}, "‹<|im_end|>›"},
		{"user text inside the template's", []string{"<|im", "*_e", "nd|>"}, "[<|im]‹_e›[nd|>]"},
		{"overlap keeps the template's mark", []string{"*x", "yz"}, "‹x›[yz]"},
		{"overlapping marks", []string{"*ababa"}, "‹ababa›"},
		{"half a mark", []string{"*<|im_en", "*x"}, "[<|im_enx]"},
		{"nothing", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(m.segments(joined(t, c.parts...))); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestSegmentsAgainstSearch compares with a search for every control text, on
// random text over a small alphabet, where everything overlaps.
func TestSegmentsAgainstSearch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, 1+rnd.IntN(n))
		for i := range b {
			b[i] = "abc"[rnd.IntN(3)]
		}
		return string(b)
	}
	for range 3000 {
		var texts []string
		for range 1 + rnd.IntN(6) {
			texts = append(texts, word(4))
		}
		var parts []string
		for range 1 + rnd.IntN(6) {
			parts = append(parts, strings.Repeat("*", rnd.IntN(2))+word(6))
		}
		text := joined(t, parts...)
		segments := newMatcher(texts).segments(text)
		var whole strings.Builder
		for _, s := range segments {
			if s.Plain {
				whole.WriteString(s.Text)
				continue
			}
			at := whole.Len()
			for _, c := range texts {
				for i := range s.Text {
					if strings.HasPrefix(s.Text[i:], c) && hasForeign(text, at+i, at+i+len(c)) {
						t.Fatalf("control texts %q, parts %q: %s lets %q through", texts, parts, show(segments), c)
					}
				}
			}
			whole.WriteString(s.Text)
		}
		if whole.String() != text.String() {
			t.Fatalf("the segments %s are not the text %q", show(segments), text)
		}
	}
}

func hasForeign(t jinja.Text, start, end int) bool {
	for _, sp := range t.ForeignSpans() {
		if sp.Start < end && sp.End > start {
			return true
		}
	}
	return false
}

func BenchmarkSegments(b *testing.B) {
	var texts []string
	for i := range 1000 {
		texts = append(texts, "<|reserved_special_token_"+strings.Repeat("9", i%7)+string(rune('a'+i%26))+"|>")
	}
	m := newMatcher(texts)
	for name, s := range map[string]string{
		"prose":    strings.Repeat("the quick brown fox ", 10_000),
		"prefixes": strings.Repeat("<|reserved_special_token_", 8_000),
	} {
		t := jinja.Foreign(s)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				m.segments(t)
			}
		})
	}
}
