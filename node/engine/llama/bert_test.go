package llama

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"tandem/node/models/gguf"
)

// bert is a tiny encoder with learned positions and a WordPiece vocabulary.
func bert(pooling uint32) *gguf.Writer {
	const embedding, ff, layers, context = 32, 64, 2, 64
	tokens := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581the", "\u2581end", "\u2581of"}
	types := []int32{3, 3, 3, 3, 3, 1, 1, 1}
	for c := 'a'; c <= 'z'; c++ {
		tokens, types = append(tokens, "\u2581"+string(c), string(c)), append(types, 1, 1)
	}
	w := &gguf.Writer{}
	for _, kv := range []struct {
		key   string
		value any
	}{
		{"general.architecture", "bert"}, {"bert.block_count", uint32(layers)}, {"bert.context_length", uint32(context)},
		{"bert.embedding_length", uint32(embedding)}, {"bert.feed_forward_length", uint32(ff)}, {"bert.attention.head_count", uint32(2)},
		{"bert.attention.layer_norm_epsilon", float32(1e-6)}, {"bert.attention.causal", false}, {"bert.pooling_type", pooling},
		{"tokenizer.ggml.model", "bert"}, {"tokenizer.ggml.tokens", tokens}, {"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.token_type_count", uint32(2)}, {"tokenizer.ggml.bos_token_id", uint32(2)}, {"tokenizer.ggml.cls_token_id", uint32(2)},
		{"tokenizer.ggml.eos_token_id", uint32(3)}, {"tokenizer.ggml.seperator_token_id", uint32(3)}, {"tokenizer.ggml.unknown_token_id", uint32(1)},
		{"tokenizer.ggml.padding_token_id", uint32(0)}, {"tokenizer.ggml.mask_token_id", uint32(4)},
	} {
		w.Set(kv.key, kv.value)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	tensor := func(name string, shape ...uint64) {
		n := shape[0]
		if len(shape) > 1 {
			n *= shape[1]
		}
		values := make([]float32, n)
		for i := range values {
			switch v := float32(rng.NormFloat64()); {
			case strings.HasSuffix(name, ".bias"):
				values[i] = v / 50
			case len(shape) == 1:
				values[i] = 1 + v/8
			default:
				values[i] = v / 4
			}
		}
		w.Floats(name, gguf.F32, shape, values)
	}
	tensor("token_embd.weight", embedding, uint64(len(tokens)))
	tensor("token_types.weight", embedding, 2)
	tensor("position_embd.weight", embedding, context)
	tensor("token_embd_norm.weight", embedding)
	tensor("token_embd_norm.bias", embedding)
	for i := range layers {
		block := func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
		for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			tensor(block(name+".weight"), embedding, embedding)
			tensor(block(name+".bias"), embedding)
		}
		tensor(block("ffn_up.weight"), embedding, ff)
		tensor(block("ffn_up.bias"), ff)
		tensor(block("ffn_down.weight"), ff, embedding)
		tensor(block("ffn_down.bias"), embedding)
		for _, name := range []string{"attn_output_norm", "layer_output_norm"} {
			tensor(block(name+".weight"), embedding)
			tensor(block(name+".bias"), embedding)
		}
	}
	return w
}

func TestEncoder(t *testing.T) {
	for name, pooling := range map[string]uint32{"mean": 1, "first": 2} {
		t.Run(name, func(t *testing.T) {
			m := loadWriter(t, bert(pooling), Options{Context: 4096, Sequences: 2})
			if i := m.info; !i.Pooled || i.CanCut || i.Context != 64 || i.Batch < 64 || i.MicroBatch != i.Batch || i.KV.Bytes() != 0 || i.Embedding != 32 {
				t.Fatalf("%+v", i)
			}
			if end, ok := m.vocab.TextEnd(); !m.vocab.AddBOS() || m.vocab.BOS() != 2 || !ok || end != 3 {
				t.Errorf("BOS %d, end %d", m.vocab.BOS(), end)
			}
			a, b := tokenize(t, m, "[CLS]the end of[SEP]"), tokenize(t, m, "[CLS]xyz the[SEP]")
			if len(a) != 5 {
				t.Fatalf("tokens %v", a)
			}
			va, vb := vector(t, m, 0, a, 64), vector(t, m, 1, b, 64)
			if c := cosine(va, vb); c > 0.99 {
				t.Errorf("different texts are alike: %v", c)
			}
			if c := cosine(va, vector(t, m, 1, a, 64)); c < 0.9999 {
				t.Errorf("the same text: %v", c)
			}
			long := &stream{t: t, m: m}
			for len(a) < 64 {
				a = append(a, 7)
			}
			long.prefill(a)
		})
	}
}
