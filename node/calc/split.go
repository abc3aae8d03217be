package calc

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// activationBytes is the size of one number that boxes exchange: 16 bits, as the papers
// of docs/calc.md count.
const activationBytes = 2

// SplitReport is what each way to spread the model over boxes sends over one link, and
// which to choose. Bytes are those that one box sends.
type SplitReport struct {
	Link  string `json:"link"`
	Boxes int    `json:"boxes"`

	Data     SplitCost `json:"data"`     // each box answers whole requests
	Pipeline SplitCost `json:"pipeline"` // each box has some layers
	Tensor   SplitCost `json:"tensor"`   // each box has a part of every matrix
	Expert   SplitCost `json:"expert"`   // each box has some experts of every layer

	// Choose is "data", "pipeline", "tensor", "expert", or "none".
	Choose string `json:"choose"`
	Reason string `json:"reason"`
}

// SplitCost is one way. DecodeMs and PrefillMs are what the link alone adds.
type SplitCost struct {
	Possible      bool    `json:"possible"`
	Why           string  `json:"why,omitempty"`   // it is not possible
	BytesPerToken float64 `json:"bytes_per_token"` // that one box sends
	Messages      int     `json:"messages"`        // one after the other, for one token of one answer
	DecodeMs      float64 `json:"decode_ms"`       // added to each token of one answer
	PrefillMs     float64 `json:"prefill_ms"`      // added to a prompt
	Bubble        float64 `json:"bubble,omitempty"`
	// PaysBelow is the rate of one box in tokens/s below which one answer is faster this
	// way than on one box that holds everything; 0: never.
	PaysBelow float64 `json:"pays_below,omitempty"`
}

// split works out one link.
func split(m *Model, q *Question, l Link, have *MemoryReport) SplitReport {
	w := wire{m: m, q: q, link: l, boxes: q.Boxes, steps: (q.Tokens + q.MicroBatch - 1) / q.MicroBatch}
	r := SplitReport{Link: l.label(), Boxes: q.Boxes, Data: SplitCost{Possible: true}, Pipeline: w.pipeline(), Tensor: w.tensor(), Expert: w.expert()}
	w.room(&r, have)
	w.choose(&r, have)
	return r
}

func (l Link) label() string {
	switch {
	case l.Name != "":
		return l.Name
	case l.Gbit > 0:
		return fmt.Sprintf("%g Gbit/s", l.Gbit)
	}
	return humanize.SIWithDigits(l.Goodput, 1, "B/s")
}

// wire is one link between boxes of which each does a part.
type wire struct {
	m     *Model
	q     *Question
	link  Link
	boxes int
	steps int // that a prompt is computed in
}

// hopMs is the way of a message; bytesMs what its bytes take besides.
func (w *wire) hopMs() float64                { return w.link.RTTMs / 2 }
func (w *wire) bytesMs(bytes float64) float64 { return bytes / w.link.Goodput * 1000 }
func (w *wire) token() float64                { return float64(w.m.Embedding) * activationBytes }
func (w *wire) perToken(n int) float64        { return w.token() * float64(n) }

// tensor: two sums over all boxes in every layer, each of a token's width, by the ring:
// 2(t-1) messages of 1/t of it.
func (w *wire) tensor() SplitCost {
	t, layers := float64(w.boxes), float64(len(w.m.Layers))
	sums := 2 * layers
	c := SplitCost{Possible: w.boxes > 1, BytesPerToken: sums * 2 * (t - 1) / t * w.token(), Messages: int(sums * 2 * (t - 1))}
	switch {
	case w.boxes < 2:
		c.Why = "there is one box"
	case w.m.count(Latent) > 0: // every box keeps the latent, heads of queries are divided
		w.divides(&c, w.m.Heads, "heads")
	case w.m.KVHeads > 0:
		w.divides(&c, w.m.KVHeads, "heads of keys and values")
	default:
		c.Possible, c.Why = false, "it has no heads to divide"
	}
	c.DecodeMs = float64(c.Messages)*w.hopMs() + w.bytesMs(c.BytesPerToken)
	c.PrefillMs = float64(w.steps)*float64(c.Messages)*w.hopMs() + w.bytesMs(c.BytesPerToken*float64(w.q.Tokens))
	if c.Possible && c.DecodeMs > 0 {
		// One answer takes d/t + c instead of d: it gains if d > c / (1 - 1/t).
		c.PaysBelow = 1000 * (1 - 1/t) / c.DecodeMs
	}
	return c
}

func (w *wire) divides(c *SplitCost, n int, what string) {
	if n%w.boxes != 0 {
		c.Possible, c.Why = false, fmt.Sprintf("%d boxes do not divide %d %s", w.boxes, n, what)
	}
}

// pipeline: each box hands each token to the next one, and the last one's token goes
// back to the first. A prompt goes in steps, so that all but the first box wait at the
// beginning and all but the last at the end.
func (w *wire) pipeline() SplitCost {
	p := float64(w.boxes)
	c := SplitCost{Possible: w.boxes > 1, BytesPerToken: w.token(), Messages: w.boxes, Bubble: (p - 1) / (float64(w.steps) + p - 1)}
	if w.boxes < 2 {
		c.Why = "there is one box"
	} else if len(w.m.Layers) < w.boxes {
		c.Possible, c.Why = false, fmt.Sprintf("there are %d layers for %d boxes", len(w.m.Layers), w.boxes)
	}
	c.DecodeMs = p*w.hopMs() + (p-1)*w.bytesMs(w.token())
	c.PrefillMs = (p - 1) * (w.hopMs() + w.bytesMs(w.perToken(min(w.q.MicroBatch, w.q.Tokens))))
	return c
}

// expert: in each layer with experts each token goes to those it uses and comes back;
// of e boxes (e-1)/e of them are elsewhere.
func (w *wire) expert() SplitCost {
	e, layers := float64(w.boxes), float64(w.m.expertLayers())
	c := SplitCost{Possible: w.boxes > 1 && layers > 0, Messages: int(2 * layers),
		BytesPerToken: 2 * layers * float64(w.m.ExpertsUsed) * w.token() * (e - 1) / e}
	switch {
	case layers == 0:
		c.Why = "it has no experts"
	case w.boxes < 2:
		c.Why = "there is one box"
	default:
		w.divides(&c, w.m.Experts, "experts")
	}
	c.DecodeMs = float64(c.Messages)*w.hopMs() + w.bytesMs(c.BytesPerToken)
	c.PrefillMs = float64(w.steps)*float64(c.Messages)*w.hopMs() + w.bytesMs(c.BytesPerToken*float64(w.q.Tokens))
	return c
}

// room takes out the ways for which the boxes have too little memory.
func (w *wire) room(r *SplitReport, have *MemoryReport) {
	if len(have.Boxes) == 0 || have.Weights == 0 {
		return
	}
	least, layers := int64(math.MaxInt64), 0
	each := float64(have.Weights+have.KV) / float64(len(w.m.Layers)+1) // the output counts as a layer, as in the engine's formula
	for _, b := range have.Boxes {
		least = min(least, b.Memory)
		if left := float64(b.Memory - have.Compute); left > 0 {
			layers += int(min(left/each, float64(len(w.m.Layers)+1)))
		}
	}
	lack := func(c *SplitCost, need float64) {
		if c.Possible && need > float64(least) {
			c.Possible, c.PaysBelow = false, 0
			c.Why = fmt.Sprintf("each box needs %s, one has %s", humanize.IBytes(uint64(need)), humanize.IBytes(uint64(least)))
		}
	}
	n := float64(w.boxes)
	kv := float64(have.KV)
	if w.m.count(Latent) == 0 {
		kv /= n
	}
	lack(&r.Tensor, float64(have.Weights)/n+kv+float64(have.Compute))
	if w.m.Parameters > 0 {
		// What is no expert is on every box, which answers requests of its own.
		experts := float64(have.Weights) * float64(w.m.ExpertParameters) / float64(w.m.Parameters)
		lack(&r.Expert, float64(have.Weights)-experts+experts/n+float64(have.KV)+float64(have.Compute))
	}
	if r.Pipeline.Possible && layers < len(w.m.Layers)+1 {
		r.Pipeline.Possible, r.Pipeline.Why = false, fmt.Sprintf("all boxes together have room for %d of %d layers", min(layers, len(w.m.Layers)), len(w.m.Layers))
	}
	for _, b := range have.Boxes {
		r.Data.Possible = r.Data.Possible && b.Fits
	}
	if !r.Data.Possible {
		r.Data.Why = have.Verdict
	}
}

// choose prefers what sends nothing, and then what makes an answer fastest.
func (w *wire) choose(r *SplitReport, have *MemoryReport) {
	fits := 0
	for _, b := range have.Boxes {
		if b.Fits {
			fits++
		}
	}
	switch {
	case r.Data.Possible && w.faster(r):
		r.Choose, r.Reason = "tensor", fmt.Sprintf("one answer would come at %.1f instead of %.1f tokens/s; for many answers at once, data sends nothing and is faster", w.tensorRate(r), w.q.DecodeRate)
	case r.Data.Possible:
		r.Choose, r.Reason = "data", "each box holds the whole model: whole requests are shared out and nothing is sent for a token"
		if len(have.Boxes) == 0 || have.Weights == 0 {
			r.Reason = "if " + r.Reason
		}
		if r.Tensor.PaysBelow > 0 {
			r.Reason += fmt.Sprintf("; tensor would make one answer faster only on boxes below %s tokens/s", short(r.Tensor.PaysBelow))
		}
	case fits > 0:
		r.Choose, r.Reason = "data", fmt.Sprintf("%d of %d boxes hold the whole model: they answer, the others serve smaller ones", fits, len(have.Boxes))
	case r.Pipeline.Possible && r.Tensor.Possible && r.Tensor.DecodeMs < w.gainMs(r):
		r.Choose, r.Reason = "tensor", fmt.Sprintf("no box holds the model; dividing each matrix adds %s to a token and saves %s", ms(r.Tensor.DecodeMs), ms(w.gainMs(r)))
	case r.Pipeline.Possible:
		r.Choose, r.Reason = "pipeline", fmt.Sprintf("no box holds the model; handing tokens on adds %s to each, tensor %s", ms(r.Pipeline.DecodeMs), ms(r.Tensor.DecodeMs))
		if w.q.DecodeRate == 0 && r.Tensor.PaysBelow > 0 {
			r.Reason += fmt.Sprintf("; tensor makes one answer faster where a whole box would be below %s tokens/s", short(r.Tensor.PaysBelow))
		}
	case r.Tensor.Possible:
		r.Choose, r.Reason = "tensor", "no box holds the model, and "+r.Pipeline.Why
	case r.Expert.Possible:
		r.Choose, r.Reason = "expert", "no box holds all experts, and "+r.Pipeline.Why
	default:
		r.Choose, r.Reason = "none", r.Pipeline.Why
	}
}

// gainMs is what tensor saves of a token against pipeline, by the rate of one box.
func (w *wire) gainMs(r *SplitReport) float64 {
	if w.q.DecodeRate == 0 {
		return 0
	}
	return 1000/w.q.DecodeRate*(1-1/float64(w.boxes)) + r.Pipeline.DecodeMs
}

// tensorRate is the rate of one answer whose matrices are divided.
func (w *wire) tensorRate(r *SplitReport) float64 {
	return 1000 / (1000/w.q.DecodeRate/float64(w.boxes) + r.Tensor.DecodeMs)
}

// fasterBy is how much faster one answer must be for tensor to be chosen where every
// box could answer alone: what is sent is never quite hidden.
const fasterBy = 1.1

func (w *wire) faster(r *SplitReport) bool {
	return w.q.DecodeRate > 0 && r.Tensor.Possible && w.q.Sequences == 1 && w.tensorRate(r) > fasterBy*w.q.DecodeRate
}

func ms(v float64) string { return seconds(v / 1000) }

// short writes a rate for people.
func short(v float64) string {
	if v >= 100 {
		return humanize.Comma(int64(v))
	}
	return fmt.Sprintf("%.3g", v)
}
