package node

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"tandem/node/api"
	"tandem/node/engine"
)

// FuzzCall: whatever another node sends is a call within the limits, or an error.
func FuzzCall(f *testing.F) {
	whole := call{Model: "m", Digest: strings.Repeat("0", 64), Request: engine.Request{Label: "r", Tokens: []engine.Token{1, 2}, Generated: []engine.Token{3}, MaxTokens: 9,
		Sampling: engine.Sampling{Temperature: 0.7, TopP: 1, RepeatLastN: -1, LogitBias: map[engine.Token]float32{5: -1}, Seed: 1 << 63, Grammar: "root ::= \"a\"", TopLogprobs: -1}}}
	data, err := json.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"model":"m","request":{"Sampling":{"TopLogprobs":100000}}}`))
	f.Add([]byte(`{"request":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeCall(data)
		if err != nil {
			return
		}
		if n := c.Request.Sampling.TopLogprobs; c.Model == "" || n > 20 || n < -1 || c.Request.MaxTokens < 0 {
			t.Fatalf("%+v is taken", c)
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := decodeCall(again); err != nil || !reflect.DeepEqual(c, same) {
			t.Fatalf("%+v became %+v: %v", c, same, err)
		}
	})
}

func TestDecodeCallRefuses(t *testing.T) {
	for text, words := range map[string]string{
		`{`:            "no JSON",
		`{"model":""}`: "model has 0 bytes; allowed are 1 to 512",
		`{"model":"m","request":{"Sampling":{"TopLogprobs":21}}}`: "top_logprobs is 21; allowed are -1 to 20",
		`{"model":"m","request":{"MaxTokens":-1}}`:                "max_tokens is -1",
		`{"model":"m","request":{"Sampling":{"Mirostat":3}}}`:     "mirostat is 3",
	} {
		if _, err := decodeCall([]byte(text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

// FuzzPrefillCall: what is taken is written again as it was, and is within limits.
func FuzzPrefillCall(f *testing.F) {
	f.Add([]byte(`{"model":"m","digest":"ab","label":"r","tokens":[1,2,3]}`))
	f.Add([]byte(`{"model":"m","tokens":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodePrefill(data)
		if err != nil {
			return
		}
		if c.Model == "" || len(c.Tokens) == 0 || len(c.Label) > api.MaxIdentifier {
			t.Fatalf("%+v was taken", c)
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := decodePrefill(again); err != nil || !reflect.DeepEqual(c, same) {
			t.Fatalf("%+v became %+v: %v", c, same, err)
		}
	})
}
