package api

import (
	"math"
	"strconv"
	"time"
)

// The ranges of the sampling parameters.
var (
	unit         = span{Low: 0, High: 1}
	aboveZero    = span{Low: 0, High: 1, openLow: true}
	temperatures = span{Low: 0, High: 2}
	penalties    = span{Low: -2, High: 2}
	repeats      = span{Low: 0, High: 10, openLow: true}
	biases       = span{Low: -100, High: 100}
	mirostatTaus = span{Low: 0, High: 100, openLow: true}
)

// neutral sampling draws from the model's own distribution.
func neutral() Sampling {
	return Sampling{Temperature: 1, TopP: 1, TypicalP: 1, RepeatPenalty: 1, RepeatLastN: -1,
		MirostatTau: 5, MirostatEta: 0.1, TopLogprobs: -1}
}

// openAIDefaults are OpenAI's documented ones, and for min_p, which that API does
// not have, a floor of 5 % of the best token's probability: at temperature 1 the
// tail of a small quantised model derails one answer in a few, and nothing within
// OpenAI's parameters would stop that. min_p: 0 gives the whole distribution.
func openAIDefaults() Sampling {
	s := neutral()
	s.MinP = 0.05
	return s
}

// ollamaDefaults are those that Ollama documents.
func ollamaDefaults() Sampling {
	s := neutral()
	s.Temperature, s.TopK, s.TopP = 0.8, 40, 0.9
	s.RepeatPenalty, s.RepeatLastN = 1.1, repeatWindow
	return s
}

// repeatWindow is how many tokens repeat_penalty looks back on by custom.
const repeatWindow = 64

// sampling reads the parameters that OpenAI's body and Ollama's options have in
// common, and the extensions that both take.
func (o *object) sampling(s *Sampling) {
	o.number("temperature", &s.Temperature, temperatures)
	o.number("top_p", &s.TopP, aboveZero)
	o.number("min_p", &s.MinP, unit)
	o.number("typical_p", &s.TypicalP, aboveZero)
	o.number("frequency_penalty", &s.FrequencyPenalty, penalties)
	o.number("presence_penalty", &s.PresencePenalty, penalties)
	if o.integer("top_k", &s.TopK, -1, MaxTokens) {
		s.TopK = max(s.TopK, 0) // both are in use for "off"
	}
	repeated := o.repeatPenalty(s)
	windowed := o.integer("repeat_last_n", &s.RepeatLastN, -1, MaxTokens)
	if repeated && !windowed && s.FrequencyPenalty == 0 && s.PresencePenalty == 0 {
		s.RepeatLastN = repeatWindow
	}
	o.integer("mirostat", &s.Mirostat, 0, 2)
	o.number("mirostat_tau", &s.MirostatTau, mirostatTaus)
	o.number("mirostat_eta", &s.MirostatEta, aboveZero)
	o.flag("ignore_eos", &s.IgnoreEOS)
	o.logitBias(s)
}

// repeatPenalty reads the field under both of its names.
func (o *object) repeatPenalty(s *Sampling) bool {
	other := s.RepeatPenalty
	a := o.number("repeat_penalty", &s.RepeatPenalty, repeats)
	b := o.number("repetition_penalty", &other, repeats)
	switch {
	case a && b && other != s.RepeatPenalty:
		o.bad("repetition_penalty", "%v contradicts repeat_penalty: %v; give one of them", other, s.RepeatPenalty)
	case b:
		s.RepeatPenalty = other
	}
	return a || b
}

func (o *object) logitBias(s *Sampling) {
	const name = "logit_bias"
	raw := o.take(name)
	if raw == nil {
		return
	}
	if raw[0] != '{' {
		o.wrong(name, raw, "an object of token ids and biases")
		return
	}
	bias := map[int32]float64{}
	for key, value := range members(raw) {
		id, err := strconv.ParseInt(unquote(key), 10, 32)
		if err != nil || id < 0 {
			o.bad(name, "%s is not a token id", show(key))
			return
		}
		v, ok := parseNumber(value)
		if !ok || !biases.holds(v) {
			o.bad(name, "the bias of token %d is %s, but must be a number %v", id, show(value), biases)
			return
		}
		if _, twice := bias[int32(id)]; twice {
			o.bad(name, "token %d is there twice", id)
			return
		}
		if len(bias) == MaxLogitBias {
			o.bad(name, "has more than %d tokens", MaxLogitBias)
			return
		}
		bias[int32(id)] = v
	}
	s.LogitBias = bias
}

// stops reads one stop string or several.
func (o *object) stops(name string) []string {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	var list [][]byte
	switch raw[0] {
	case '"':
		list = [][]byte{raw}
	case '[':
		list, _ = o.list(name, MaxStops)
	default:
		o.wrong(name, raw, "a string or an array of strings")
	}
	var stops []string
	for i, e := range list {
		if e[0] != '"' {
			o.wrong(at(name, i), e, "a string")
			return nil
		}
		s := unquote(e)
		if s == "" || len(s) > MaxStopBytes {
			o.bad(at(name, i), "has %d bytes, but must have 1 to %d", len(s), MaxStopBytes)
			return nil
		}
		stops = append(stops, s)
	}
	return stops
}

// chatLogprobs reads logprobs and top_logprobs.
func (o *object) chatLogprobs(s *Sampling) {
	var want bool
	o.flag("logprobs", &want)
	if want {
		s.TopLogprobs = 0
	}
	var top int
	if o.integer("top_logprobs", &top, 0, MaxTopLogprobs) {
		if !want && top > 0 {
			o.bad("top_logprobs", "%d needs logprobs: true", top)
		}
		if want {
			s.TopLogprobs = top
		}
	}
}

// keepAlive reads how long a model stays loaded: a duration ("5m"), or a number
// of seconds; negative is for ever.
func (o *object) keepAlive() *time.Duration {
	const name = "keep_alive"
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	text := string(raw[:min(len(raw), MaxIdentifier)])
	if raw[0] == '"' {
		if o.text(name, &text, MaxIdentifier); o.err != nil {
			return nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(seconds) {
			o.bad(name, `%s must be a duration such as "5m", or a number of seconds`, show(raw))
			return nil
		}
		d = time.Duration(max(min(seconds, maxKeepAlive.Seconds()), -1) * float64(time.Second))
	}
	d = max(min(d, maxKeepAlive), -1)
	return &d
}
