package node

import (
	"tandem/node/engine"
	"tandem/node/models"
)

// ModelRates is how fast a model is on this node: what the self-benchmark measured,
// corrected by requests, of which more count more. 0 is unknown.
type ModelRates struct {
	PrefillMs      float64 `json:"prefill_ms"` // of a prompt's first token
	PrefillDoubles float64 `json:"prefill_doubles,omitempty"`
	// Decode is the time between tokens in short contexts, by streams; DecodeDoubles the
	// context at which it is twice that.
	Decode        []DecodePoint `json:"decode,omitempty"`
	DecodeDoubles float64       `json:"decode_doubles,omitempty"`
	Import        float64       `json:"import_bytes_per_second,omitempty"`
	Export        float64       `json:"export_bytes_per_second,omitempty"`
	Measured      *SelfFigures  `json:"measured,omitempty"` // nil: only requests have told
	KVBytes       int           `json:"kv_bytes_per_token,omitempty"`
}

// Half of the weight belongs to requests when they had so many prompt tokens, or
// steps, since the self-benchmark: with fewer, one slow moment would count too much.
const (
	tokensHalf = 2048
	stepsHalf  = 64
	// correctionMax bounds what requests make of measured decoding at other widths than
	// theirs.
	correctionMax = 4
)

// ratesOf are the rates of a model; st is of its engine, zero if it is not loaded.
func (n *Node) ratesOf(m models.Model, st engine.Stats) ModelRates {
	f, ok := n.bench.of(m)
	if !ok {
		return onlineRates(st)
	}
	return blend(f, st)
}

// onlineRates are those that requests alone tell.
func onlineRates(st engine.Stats) ModelRates {
	r := ModelRates{PrefillMs: milliseconds(st.TokenTime), PrefillDoubles: st.TokenDoubles, Import: st.RestoreRate, Export: st.ExportRate}
	if st.StepTime > 0 {
		r.Decode = []DecodePoint{{Streams: max(1, int(st.StepWidth+0.5)), Ms: milliseconds(st.StepTime)}}
	}
	return r
}

// blend corrects what was measured by what requests since have told.
func blend(f SelfFigures, st engine.Stats) ModelRates {
	r := ModelRates{Measured: &f, Import: f.Import, Export: f.Export, DecodeDoubles: f.decodeDoubles()}
	r.PrefillMs, r.PrefillDoubles = f.prefillLine()
	if online := milliseconds(st.TokenTime); online > 0 {
		share := float64(st.TokensKnown) / float64(st.TokensKnown+tokensHalf)
		r.PrefillMs += (online - r.PrefillMs) * share
		if st.TokenDoubles > 0 && (share > 0.5 || r.PrefillDoubles == 0) {
			r.PrefillDoubles = st.TokenDoubles
		}
	}
	correct := 1.0
	if online := milliseconds(st.StepTime); online > 0 {
		ratio := online / f.paceAt(st.StepWidth)
		correct += (ratio - 1) * float64(st.StepsKnown) / float64(st.StepsKnown+stepsHalf)
		correct = min(max(correct, 1.0/correctionMax), correctionMax)
	}
	for _, p := range f.Decode {
		p.Ms *= correct
		r.Decode = append(r.Decode, p)
	}
	if st.RestoreRate > 0 {
		r.Import = st.RestoreRate
	}
	if st.ExportRate > 0 {
		r.Export = st.ExportRate
	}
	return r
}
