package api

import (
	"slices"
	"strings"
	"time"
)

// choice gathers one answer that is sent as a whole.
type choice struct {
	content   strings.Builder
	reasoning strings.Builder
	calls     []ToolCallDelta
	logprobs  []TokenLogprob
	finish    Finish
}

func (c *choice) add(d *Delta) {
	c.content.WriteString(d.Content)
	c.reasoning.WriteString(d.Reasoning)
	c.logprobs = append(c.logprobs, d.Logprobs...)
	for _, piece := range d.ToolCalls {
		c.calls = joinCall(c.calls, piece)
	}
}

// joinCall adds a piece to the calls it belongs to. Pieces come in order, and
// those of one call before those of the next.
func joinCall(calls []ToolCallDelta, piece ToolCallDelta) []ToolCallDelta {
	for len(calls) <= piece.Index {
		calls = append(calls, ToolCallDelta{Index: len(calls)})
	}
	call := &calls[piece.Index]
	call.ID += piece.ID
	call.Name += piece.Name
	call.Arguments += piece.Arguments
	return calls
}

// wholeCalls are the calls whose arguments are complete. An answer that was cut
// may end within a call; half a call is not passed off as one.
func wholeCalls(calls []ToolCallDelta) []ToolCallDelta {
	return slices.DeleteFunc(slices.Clone(calls), func(c ToolCallDelta) bool { return c.Name == "" || !isObject(c.Arguments) })
}

func isObject(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "{") && checkJSON([]byte(s)) == nil
}

// best picks the answers with the highest mean log probability, prompt by prompt,
// if more were made than were asked for.
func best(c *call, choices []choice) []choice {
	if c.answers == c.N || len(choices) == 0 {
		return choices
	}
	var picked []choice
	for group := range slices.Chunk(choices, c.N) {
		slices.SortStableFunc(group, func(a, b choice) int {
			switch x, y := meanLogprob(a.logprobs), meanLogprob(b.logprobs); {
			case x > y:
				return -1
			case x < y:
				return 1
			}
			return 0
		})
		picked = append(picked, group[:c.answers]...)
	}
	return picked
}

func meanLogprob(tokens []TokenLogprob) float64 {
	if len(tokens) == 0 {
		return lowestLogprob
	}
	sum := 0.0
	for _, t := range tokens {
		sum += finiteLogprob(t.Logprob)
	}
	return sum / float64(len(tokens))
}

// created is the time of an answer; the node's, if it told.
func (a *Accepted) created() int64 {
	if a.Created.IsZero() {
		return time.Now().Unix()
	}
	return a.Created.Unix()
}
