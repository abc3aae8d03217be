package chat

import (
	"math/rand/v2"
	"strings"
)

// Delta is a piece of an answer; one of its fields is set.
type Delta struct {
	Content   string
	Reasoning string
	Call      *CallDelta
}

// CallDelta is a call. Calls come whole: the arguments are one complete JSON
// object, and nothing of a call is given before that is certain.
type CallDelta struct {
	Index     int // 0, 1, ... in the order of the answer
	ID        string
	Name      string
	Arguments string
}

// ParserOptions say what an answer was asked for.
type ParserOptions struct {
	Tools     []Tool
	Choice    ToolChoice
	Parallel  bool
	ThinkOpen bool        // of the prompt
	Source    rand.Source // of the ids of calls
}

// Parser reads an answer as it is generated. It gives what is certain at once and
// holds back only what may be the beginning of a tag or call; how the answer is
// cut into pieces makes no difference to the whole. It is used by one goroutine.
type Parser struct {
	opts   ParserOptions
	tags   reasoningTags
	format toolFormat // nil: calls are not looked for
	names  []string

	held    window // not given yet
	step    func(p *Parser, last bool) bool
	out     []Delta
	scan    objectScan
	object  match // where the object of the present call begins
	calls   int
	thought bool // there were thoughts

	channel, recipient string // of the present message, in answers made of messages
}

// NewParser returns a parser for one answer.
func (t *Template) NewParser(o ParserOptions) *Parser {
	p := &Parser{opts: o, tags: t.tags, step: (*Parser).begin}
	switch {
	case t.channels:
		p.step = (*Parser).header
	case o.ThinkOpen:
		p.step = (*Parser).beginThoughts
	}
	if tools, err := callable(o.Tools, o.Choice); err == nil && len(tools) > 0 {
		p.format = t.format
		for _, tool := range tools {
			p.names = append(p.names, tool.Name)
		}
	}
	return p
}

// Push takes more of the answer and returns what is certain now.
func (p *Parser) Push(text string) []Delta {
	p.held.add(text)
	return p.run(false)
}

// Close ends the answer. What was held back is given as what it is then: a call
// that is not complete is content, as it was written.
func (p *Parser) Close() []Delta { return p.run(true) }

// Called reports whether there were calls.
func (p *Parser) Called() bool { return p.calls > 0 }

// FinishReason is the reason for the client, given the engine's: an answer that
// ended by itself and has calls ended for them; one that was cut was cut.
func (p *Parser) FinishReason(engine string) string {
	if engine == "stop" && p.Called() {
		return "tool_calls"
	}
	return engine
}

func (p *Parser) run(last bool) []Delta {
	for p.held.rest() != "" && p.step(p, last) {
	}
	out := p.out
	p.out = nil
	return out
}

// A step looks at the start of what is held and reports whether it got on; if
// not, it waits for more. With last there is nothing to wait for.

const blanks = " \t\r\n"

// begin is before the first word of content.
func (p *Parser) begin(last bool) bool {
	held := p.held.rest()
	rest := strings.TrimLeft(held, blanks)
	first := !p.thought && p.calls == 0
	if rest == "" {
		if last {
			p.held.keep("")
		}
		if last && first {
			p.content(held)
		}
		return last
	}
	if first {
		switch literalAt(rest, p.tags.open) {
		case yes:
			p.held.keep(rest[len(p.tags.open):])
			p.step = (*Parser).beginThoughts
			return true
		case more:
			if !last {
				return false
			}
		}
	}
	if p.format != nil {
		switch m := p.format.open(rest, p.names); {
		case m.verdict == yes:
			p.held.keep(rest)
			p.enter(m)
			return true
		case m.verdict == more && !last:
			return false
		}
	}
	if !first {
		p.held.keep(rest)
	}
	p.step = (*Parser).text
	return true
}

// beginThoughts drops blanks and a second tag: some models repeat the one that
// the prompt ends with.
func (p *Parser) beginThoughts(last bool) bool {
	p.thought = true
	rest := strings.TrimLeft(p.held.rest(), blanks)
	switch literalAt(rest, p.tags.open) {
	case yes:
		p.held.keep(rest[len(p.tags.open):])
		return true
	case more:
		if !last {
			return false
		}
	}
	p.held.keep(rest)
	p.step = (*Parser).thoughts
	return true
}

func (p *Parser) thoughts(last bool) bool {
	held := p.held.rest()
	if i := strings.Index(held, p.tags.end); i >= 0 {
		p.reasoning(strings.TrimRight(held[:i], blanks))
		p.held.drop(i + len(p.tags.end))
		p.step = (*Parser).begin
		return true
	}
	sure := held
	if !last {
		sure = held[:len(held)-partial(held, p.tags.end)]
	}
	// Blanks at the end are dropped, so they wait for a word.
	sure = strings.TrimRight(sure, blanks)
	p.reasoning(sure)
	p.held.drop(len(sure))
	if last {
		p.held.keep("")
	}
	return false
}

// text is content up to the next call.
func (p *Parser) text(last bool) bool {
	held := p.held.rest()
	sure := held
	if p.format != nil && p.format.marker() != "" {
		marker := p.format.marker()
		if i := strings.Index(held, marker); i >= 0 {
			p.content(held[:i])
			p.held.drop(i)
			p.step = (*Parser).call
			return true
		}
		if !last {
			sure = held[:len(held)-partial(held, marker)]
		}
	}
	p.content(sure)
	p.held.drop(len(sure))
	return false
}

// partial is the length of the longest end of s that is the beginning of marker,
// but not all of it.
func partial(s, marker string) int {
	n := min(len(s), len(marker)-1)
	for !strings.HasSuffix(s, marker[:n]) {
		n--
	}
	return n
}

// call is at a marker.
func (p *Parser) call(last bool) bool {
	switch m := p.format.open(p.held.rest(), p.names); {
	case m.verdict == yes:
		p.enter(m)
	case m.verdict == more && !last:
		return false
	default:
		p.noCall()
	}
	return true
}

// enter begins the object of a call.
func (p *Parser) enter(m match) {
	p.object, p.scan, p.step = m, objectScan{at: m.n}, (*Parser).inObject
}

// noCall makes what looked like a call content: its marker now, the rest by
// looking at it again. Without a marker everything is.
func (p *Parser) noCall() {
	if marker := p.format.marker(); strings.HasPrefix(p.held.rest(), marker) {
		p.content(marker)
		p.held.drop(len(marker))
	}
	p.step = (*Parser).text
}

// inObject waits for the end of the object.
func (p *Parser) inObject(last bool) bool {
	held := p.held.rest()
	end := p.scan.end(held)
	if end < 0 {
		if last {
			p.noCall()
		}
		return last
	}
	call, ok := readCall(held[p.object.n:end], p.object.name, p.names)
	if !ok {
		p.noCall()
		return true
	}
	p.give(call)
	p.held.drop(end)
	p.step = (*Parser).afterCall
	return true
}

func (p *Parser) give(call CallDelta) {
	call.Index, call.ID = p.calls, p.newID()
	p.calls++
	p.out = append(p.out, Delta{Call: &call})
}

// afterCall is behind the object of a call. If only one is wanted, another one is
// content.
func (p *Parser) afterCall(last bool) bool {
	m := p.format.next(p.held.rest(), p.names)
	switch {
	case m.verdict == more && !last:
		return false
	case m.verdict == yes && p.opts.Parallel:
		p.enter(m)
		return true
	case m.verdict == no:
		p.held.drop(m.n)
	}
	if !p.opts.Parallel {
		p.format = nil
	}
	p.step = (*Parser).begin
	return true
}

func (p *Parser) content(s string) {
	if s == "" {
		return
	}
	if n := len(p.out); n > 0 && p.out[n-1].Content != "" {
		p.out[n-1].Content += s
		return
	}
	p.out = append(p.out, Delta{Content: s})
}

func (p *Parser) reasoning(s string) {
	if s == "" {
		return
	}
	if n := len(p.out); n > 0 && p.out[n-1].Reasoning != "" {
		p.out[n-1].Reasoning += s
		return
	}
	p.out = append(p.out, Delta{Reasoning: s})
}

// newID makes the id of a call: 24 letters and digits, some 120 random bits.
func (p *Parser) newID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	id := []byte("call_")
	for range 2 {
		bits := p.opts.Source.Uint64()
		for range 12 {
			id = append(id, letters[bits%32])
			bits /= 32
		}
	}
	return string(id)
}
