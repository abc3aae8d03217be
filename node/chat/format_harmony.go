package chat

import (
	"fmt"
	"strings"
)

// harmonyFormat is that of gpt-oss: an answer is a row of messages with headers
// that name a channel and, for calls, a recipient. Parser.header reads it.
type harmonyFormat struct{}

const (
	channelMark   = "<|channel|>"
	messageMark   = "<|message|>"
	startMark     = "<|start|>"
	recipientMark = "to=functions."
	analysis      = channelMark + "analysis" + messageMark
	final         = channelMark + "final" + messageMark
)

// messageEnds are what ends the body of a message. Those that end the whole
// answer give no text when they are generated.
func messageEnds() []string { return []string{"<|end|>", "<|call|>", "<|return|>", startMark} }

func (harmonyFormat) name() string   { return "harmony" }
func (harmonyFormat) marker() string { return channelMark }

func (harmonyFormat) markers() []string {
	return append(messageEnds(), channelMark, messageMark, "<|constrain|>")
}

func (harmonyFormat) root(g *callGrammar) string {
	var ways []string
	for i, name := range g.names {
		ways = append(ways, fmt.Sprintf("%s %s", g.b.Literal(name+" <|constrain|>json"+messageMark), g.args[i]))
	}
	return fmt.Sprintf("%s (%s)", g.b.Literal(channelMark+"commentary "+recipientMark), strings.Join(ways, " | "))
}

func (harmonyFormat) triggers(*callGrammar) []string {
	return []string{`<\|channel\|>commentary to=(?:functions(?:\.)?)?`}
}

func (harmonyFormat) open(string, []string) match { return match{verdict: no} }
func (harmonyFormat) next(string, []string) match { return match{verdict: no} }

// maxHeader bounds what may stand before a message's body.
const maxHeader = 512

// header is before the body of a message.
func (p *Parser) header(last bool) bool {
	held := p.held.rest()
	i := strings.Index(held, messageMark)
	switch {
	case i < 0 && len(held) < maxHeader && !last:
		return false
	case i < 0 || i > maxHeader:
		if !strings.HasPrefix(held, startMark) {
			p.content(held)
		}
		p.held.keep("")
		return false
	}
	head := held[:i]
	p.channel, p.recipient = "", ""
	if _, after, ok := strings.Cut(head, channelMark); ok {
		p.channel = firstWord(after)
	}
	if _, after, ok := strings.Cut(head, recipientMark); ok {
		p.recipient = firstWord(after)
	}
	p.held.drop(i + len(messageMark))
	p.step = (*Parser).body
	return true
}

// firstWord is the text up to a blank or a mark.
func firstWord(s string) string {
	if i := strings.IndexAny(s, blanks+"<"); i >= 0 {
		return s[:i]
	}
	return s
}

// body is inside a message: thoughts, content or the arguments of a call.
func (p *Parser) body(last bool) bool {
	held := p.held.rest()
	end, mark, unsure := len(held), "", 0
	for _, m := range messageEnds() {
		if i := strings.Index(held, m); i >= 0 && i < end {
			end, mark = i, m
		}
		unsure = max(unsure, partial(held, m))
	}
	ended := mark != "" || last
	if !ended {
		end -= unsure
	}
	switch {
	case p.recipient != "":
		if !ended {
			return false
		}
		p.callTo(p.recipient, held[:end])
	case p.channel == "analysis":
		p.reasoning(held[:end])
	default:
		p.content(held[:end])
	}
	if mark == startMark {
		mark = "" // the next header begins with it
	}
	p.held.drop(end + len(mark))
	if ended {
		p.step = (*Parser).header
	}
	return ended
}

// callTo gives a call whose name and arguments stand apart, or its text if it is none.
func (p *Parser) callTo(name, args string) {
	call, ok := callOf(name, []byte(args), p.names)
	if !ok || p.calls > 0 && !p.opts.Parallel {
		p.content(args)
		return
	}
	p.give(call)
}
