package builtin_test

import (
	"bytes"
	"strings"
	"testing"

	"tandem/node/models/builtin"
)

// sizeMax is what the repository and the program may grow by.
const sizeMax = 4_000_000

func TestGGUF(t *testing.T) {
	if !bytes.HasPrefix(builtin.GGUF, []byte("GGUF\x03\x00\x00\x00")) {
		t.Errorf("starts with %q, want the header of GGUF version 3", builtin.GGUF[:8])
	}
	if len(builtin.GGUF) > sizeMax {
		t.Errorf("has %d bytes, at most %d are allowed", len(builtin.GGUF), sizeMax)
	}
	for _, text := range []string{"tokenizer.chat_template", "<|im_start|>", "<|im_end|>", builtin.Name} {
		if !bytes.Contains(builtin.GGUF, []byte(text)) {
			t.Errorf("has no %q", text)
		}
	}
}

func TestQuestions(t *testing.T) {
	questions, err := builtin.Questions()
	if err != nil {
		t.Fatal(err)
	}
	heldOut := 0
	seen := map[string]bool{}
	for _, q := range questions {
		if q.HeldOut {
			heldOut++
		}
		if seen[q.Question] {
			t.Errorf("%q is listed twice", q.Question)
		}
		seen[q.Question] = true
		if len(q.Want) == 0 || q.Right("") {
			t.Errorf("%q: an empty answer would be right", q.Question)
		}
		for _, group := range q.Want {
			for _, word := range group {
				if word == "" || word != strings.ToLower(word) {
					t.Errorf("%q: wanted word %q is empty or not in lower case", q.Question, word)
				}
			}
		}
	}
	if len(questions) < 45 || heldOut < 20 {
		t.Errorf("%d questions, %d of them held out; want at least 45 and 20", len(questions), heldOut)
	}
}

func TestRight(t *testing.T) {
	q := builtin.Question{Want: [][]string{{"9494"}, {"tcp", "udp"}}}
	for answer, want := range map[string]bool{
		"Port 9494 is TCP.": true,
		"9494, udp":         true,
		"Port 9494.":        false,
		"Port 9495 is TCP.": false,
		"":                  false,
	} {
		if got := q.Right(answer); got != want {
			t.Errorf("Right(%q) = %v, want %v", answer, got, want)
		}
	}
}
