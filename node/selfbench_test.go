package node

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"tandem/node/engine"
)

func figures() SelfFigures {
	return SelfFigures{
		Prefill: []PrefillPoint{{64, 64 * 2.064}, {1024, 1024 * 3.024}}, // 2 ms, and 1 ms more for each 1,000 tokens before
		Decode:  []DecodePoint{{1, 16, 10}, {2, 16, 12}, {4, 16, 16}}, DecodeLong: DecodePoint{1, 1016, 15},
		Import: 1e9, Export: 2e9, Rounds: 3, At: time.Unix(1, 0).UTC(),
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= math.Abs(b)*0.02 }

// What is measured becomes the figures of the cost model again.
func TestFiguresOfPoints(t *testing.T) {
	f := figures()
	if first, doubles := f.prefillLine(); !near(first, 2) || !near(doubles, 1000) {
		t.Errorf("prefill: %g ms, doubles at %g; want 2 ms, 1,000", first, doubles)
	}
	if d := f.decodeDoubles(); !near(d, 2000) {
		t.Errorf("decode doubles at %g, want 2,000", d)
	}
	for streams, want := range map[float64]float64{0.5: 10, 1: 10, 1.5: 11, 3: 14, 9: 16} {
		if got := f.paceAt(streams); !near(got, want) {
			t.Errorf("%g streams: %g ms, want %g", streams, got, want)
		}
	}
	noisy := figures()
	noisy.Prefill, noisy.DecodeLong = []PrefillPoint{{64, 100}, {128, 400}}, DecodePoint{1, 128, 40}
	if first, doubles := noisy.prefillLine(); first != 400.0/128 || doubles != 0 || noisy.decodeDoubles() != 0 {
		t.Errorf("of noise: %g ms, %g, %g", first, doubles, noisy.decodeDoubles())
	}
	f.Prefill[1].Ms = 1024 * 2.0
	f.DecodeLong.Ms = 10.1
	if first, doubles := f.prefillLine(); first != 2 || doubles != 0 || f.decodeDoubles() != 0 {
		t.Errorf("without a slope: %g ms, %g, %g", first, doubles, f.decodeDoubles())
	}
}

// A few slow steps change little of what was measured, many change all.
func TestRatesAreCorrected(t *testing.T) {
	st := engine.Stats{TokenTime: 20 * time.Millisecond, TokensKnown: 64, StepTime: 120 * time.Millisecond, StepWidth: 2, StepsKnown: 4}
	r := blend(figures(), st)
	if r.PrefillMs > 2.7 || r.Decode[0].Ms > 16 || r.Decode[0].Ms < 10 {
		t.Errorf("after a few steps that were ten times as slow: %+v", r)
	}
	st.TokensKnown, st.StepsKnown = engine.RatesFull, engine.RatesFull
	r = blend(figures(), st)
	if r.PrefillMs < 17 || !near(r.Decode[1].Ms, 12*correctionMax) || r.Import != 1e9 {
		t.Errorf("after many: %+v", r)
	}
	if r := onlineRates(st); r.PrefillMs != 20 || len(r.Decode) != 1 || r.Decode[0].Streams != 2 {
		t.Errorf("without a measurement: %+v", r)
	}
}

// It is measured anew if the few requests since say something else.
func TestFiguresAreDoubted(t *testing.T) {
	f := figures()
	for _, tt := range []struct {
		name string
		st   engine.Stats
		want bool
	}{
		{"no request", engine.Stats{}, false},
		{"a few that agree", engine.Stats{TokenTime: 2 * time.Millisecond, TokensKnown: 100, StepTime: 10 * time.Millisecond, StepWidth: 1, StepsKnown: 10}, false},
		{"a few slow prompts", engine.Stats{TokenTime: 4 * time.Millisecond, TokensKnown: 100}, true},
		{"a few slow tokens", engine.Stats{StepTime: 30 * time.Millisecond, StepWidth: 1, StepsKnown: 10}, true},
		{"many slow ones", engine.Stats{TokenTime: 4 * time.Millisecond, TokensKnown: 10_000, StepTime: 30 * time.Millisecond, StepWidth: 1, StepsKnown: 1000}, false},
	} {
		if got := f.doubtful(tt.st); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func FuzzFigures(f *testing.F) {
	seed, err := json.Marshal(map[string]SelfFigures{"k": figures()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"k":{"prefill":[{"tokens":1,"ms":1e308}],"decode":[{"streams":1,"ms":1}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		figures, err := decodeFigures(data)
		if err != nil {
			return
		}
		for key, v := range figures {
			first, doubles := v.prefillLine()
			if !(first > 0) || doubles < 0 || math.IsNaN(doubles) || math.IsNaN(v.decodeDoubles()) || !(v.paceAt(3) > 0) {
				t.Errorf("%q: %+v gives %g, %g, %g", key, v, first, doubles, v.decodeDoubles())
			}
		}
		again, err := json.Marshal(figures)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := decodeFigures(again); err != nil || !reflect.DeepEqual(figures, second) {
			t.Errorf("what was read is not what is written: %v", err)
		}
	})
}

// On a slow wire a long prompt stays here, on a fast one its KV is fetched.
func TestOutlooks(t *testing.T) {
	f := figures()
	f.Prefill = []PrefillPoint{{64, 8}, {1024, 128}} // 8,000 tokens/s
	r := blend(f, engine.Stats{})
	r.KVBytes = 114688
	list := Outlooks(r)
	if len(list) != 4 {
		t.Fatalf("%+v", list)
	}
	slow, fast := list[0], list[3]
	if !near(slow.LocalMs, 1000) || slow.FetchedMs < 7000 || slow.RemoteMs < 7000 || slow.Choice != "computed here; held there, computed" {
		t.Errorf("1 Gbit/s: %+v", slow)
	}
	if fast.FetchedMs > fast.LocalMs+500 || fast.FetchedMs <= 0 {
		t.Errorf("100 Gbit/s: %+v", fast)
	}
	if Outlooks(ModelRates{}) != nil {
		t.Error("an outlook of nothing")
	}
}
