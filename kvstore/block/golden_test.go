package block_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"tandem/kvstore/block"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

const (
	vectorsPath = "testdata/vectors.json"
	formatPath  = "../../docs/kv-format.md"
)

// hexBytes is hexadecimal in JSON.
type hexBytes []byte

func (h hexBytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }
func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// vector is one example of everything that the format has. What comes in is above
// the line, what must come out below.
type vector struct {
	Name      string
	Key       hexBytes
	Traits    traitsJSON
	Tenant    string
	Tokens    []block.Token
	BlockSize int
	Encoded   int      // the block whose encoding follows
	Payload   hexBytes // of that block

	FingerprintMessage hexBytes
	Fingerprint        hexBytes
	Root               hexBytes
	IDs                []hexBytes
	Header             hexBytes // with its digest and check sum
}

// traitsJSON is block.Traits with digests in hexadecimal.
type traitsJSON struct {
	Model hexBytes
	block.Traits
	Adapters []adapterJSON
}

type adapterJSON struct {
	Digest hexBytes
	block.Adapter
}

func (t traitsJSON) traits() block.Traits {
	out := t.Traits
	copy(out.Model[:], t.Model)
	out.Adapters = nil
	for _, a := range t.Adapters {
		copy(a.Adapter.Digest[:], a.Digest)
		out.Adapters = append(out.Adapters, a.Adapter)
	}
	return out
}

func toJSON(t block.Traits) traitsJSON {
	out := traitsJSON{Model: t.Model[:], Traits: t}
	for _, a := range t.Adapters {
		out.Adapters = append(out.Adapters, adapterJSON{a.Digest[:], a})
	}
	return out
}

// complete computes what must come out.
func (v vector) complete(t *testing.T) vector {
	traits := v.Traits.traits()
	if err := traits.Validate(); err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	key := block.Key(v.Key)
	f := traits.Fingerprint()
	root := key.Root(f, v.Tenant)
	v.FingerprintMessage, v.Fingerprint, v.Root = block.FingerprintMessage(traits), f[:], root[:]
	ids := key.Chain(root, v.Tokens, v.BlockSize)
	v.IDs = nil
	for _, id := range ids {
		v.IDs = append(v.IDs, id[:])
	}
	h := block.Header{ID: ids[v.Encoded], Parent: root, Fingerprint: f, Start: v.Encoded * v.BlockSize, Count: v.BlockSize, PayloadBytes: len(v.Payload)}
	if v.Encoded > 0 {
		h.Parent = ids[v.Encoded-1]
	}
	h.Tokens = v.Tokens[h.Start:][:h.Count]
	h.Digest = h.Sum(v.Payload)
	if err := h.Check(traits.Shape, v.Payload); err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	v.Header = block.AppendHeader(nil, h)
	return v
}

// inputs are the vectors without their results.
func inputs() []vector {
	key := make(hexBytes, 32)
	for i := range key {
		key[i] = byte(i)
	}
	small := block.Traits{
		Model: [32]byte{0xaa, 0xbb}, Architecture: "llama", Engine: "ec98e2002/1",
		Shape:    block.Shape{Layers: []block.Layer{{K: block.Row{Type: block.F16, Values: 2}, V: block.Row{Type: block.F16, Values: 1}}}},
		KVLayers: []int{0}, HeadK: 2, HeadV: 1, BlockTokens: 2,
		FlashAttention: true, Causal: true,
		RopeType: "norm", RopeDimensions: 2, RopeBase: 10000, RopeScale: 1, RopeScaling: "none",
		YarnAttnFactor: 1, YarnBetaFast: 32, YarnBetaSlow: 1, YarnOrigContext: 2048,
	}
	wide := full()
	wide.BlockTokens = 3
	return []vector{
		{Name: "small", Key: key, Traits: toJSON(small), Tenant: "", Tokens: []block.Token{1, 2, 3, 4, 5}, BlockSize: 2, Encoded: 1,
			Payload: []byte{0x00, 0x3c, 0x00, 0x40, 0x00, 0xc0, 0xff, 0x7b, 0x00, 0x00, 0x01, 0x00}},
		{Name: "every trait, all types, a tenant", Key: bytes.Repeat([]byte{0x5a}, 32), Traits: toJSON(wide), Tenant: "sk-ünïcode",
			Tokens: []block.Token{0, 1<<31 - 1, 7, 7, 7, 7, 128000}, BlockSize: 3, Encoded: 0, Payload: rows(1, wide.Shape, 3)},
	}
}

func TestVectors(t *testing.T) {
	var got []vector
	for _, v := range inputs() {
		got = append(got, v.complete(t))
	}
	text, err := json.MarshalIndent(got, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile(vectorsPath, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(vectorsPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("%s differs: the format has changed, and with it every stored block and every peer; got:\n%s", vectorsPath, text)
	}
}

// The numbers of the worked example in the document are those of the first vector.
func TestDocumentHasTheFirstVector(t *testing.T) {
	text, err := os.ReadFile(formatPath)
	if err != nil {
		t.Fatal(err)
	}
	digits := strings.Join(strings.Fields(string(text)), "")
	v := inputs()[0].complete(t)
	for what, b := range map[string]hexBytes{
		"fingerprint message": v.FingerprintMessage, "fingerprint": v.Fingerprint, "root": v.Root,
		"first id": v.IDs[0], "second id": v.IDs[1], "payload": v.Payload, "header": v.Header,
	} {
		if !strings.Contains(digits, hex.EncodeToString(b)) {
			t.Errorf("%s does not have the %s: %x", formatPath, what, []byte(b))
		}
	}
}
