package jinja

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits bound one render. Steps and bytes do the real work, because they give
// the same verdict on every machine; the time is a backstop for a machine so
// busy that even a bounded render would hold a request up.
type Limits struct {
	Steps  int           // statements, expressions and elements visited
	Bytes  int           // made over the whole render, whether still held or not
	Output int           // bytes of the result
	Depth  int           // nesting of expressions, statements, macros and values
	Time   time.Duration // wall time
}

// The default limits, and what things cost.
const (
	// A step takes 50 to 100 ns, so this is some 250 ms on an idle core. In the
	// templates of common models a message costs 50 to 200 steps, in the longest
	// ones 900: room for more messages than a context holds.
	defaultSteps = 4_000_000
	// Every copy counts. A prompt of a million tokens is some 4 MB, which
	// templates copy three to five times.
	defaultBytes = 32 << 20
	// More text than any context holds.
	defaultOutput = 8 << 20
	// Common templates stay under 40, recursive macros over JSON schemas under
	// 200. A level takes about 1 KiB of stack.
	defaultDepth = 1000
	defaultTime  = time.Second

	bytesPerStep = 64 // scanning this much text costs one step
	textBytes    = 64 // a text's header
	spanBytes    = 16
	itemBytes    = 16 // one element of a list
	entryBytes   = 96 // one entry of a dict or scope
	clockSteps   = 2048
)

// DefaultLimits are what a render of a request gets.
func DefaultLimits() Limits {
	return Limits{Steps: defaultSteps, Bytes: defaultBytes, Output: defaultOutput, Depth: defaultDepth, Time: defaultTime}
}

// meter holds what is left of a render's limits. Once something has run out it
// stays so: err is set and every further spend fails. Code that cannot return an
// error may ignore the result of spend as long as what it does next is small;
// the next expression reports the error.
type meter struct {
	ctx    context.Context
	limits Limits
	steps  int // left
	bytes  int // left
	depth  int // present nesting
	clock  int // steps until the context is looked at again
	err    error
}

func newMeter(ctx context.Context, l Limits) *meter {
	return &meter{ctx: ctx, limits: l, steps: l.Steps, bytes: l.Bytes, clock: clockSteps}
}

// spend takes steps and bytes from the budget. It reports whether there was enough.
func (m *meter) spend(steps, bytes int) bool {
	if m.err != nil {
		return false
	}
	m.steps -= steps
	m.bytes -= bytes
	m.clock -= steps
	switch {
	case m.steps < 0:
		m.err = exhausted("it takes more than %d steps", m.limits.Steps)
	case m.bytes < 0:
		m.err = exhausted("it makes more than %d bytes", m.limits.Bytes)
	case m.clock < 0:
		m.clock = clockSteps
		m.err = m.overtime()
	}
	return m.err == nil
}

func (m *meter) overtime() error {
	switch err := context.Cause(m.ctx); {
	case err == nil:
		return nil
	case errors.Is(err, errTime):
		return exhausted("it takes more than %v", m.limits.Time)
	default:
		return err
	}
}

// errTime is the cause of a context that ended by Limits.Time.
var errTime = errors.New("time limit of the render")

// afford is spend for callers that can return an error.
func (m *meter) afford(steps, bytes int) error {
	m.spend(steps, bytes)
	return m.err
}

// enter goes one level deeper; leave undoes it whether or not enter succeeded.
func (m *meter) enter() error {
	m.depth++
	if m.depth > m.limits.Depth && m.err == nil {
		m.err = exhausted("it nests deeper than %d levels", m.limits.Depth)
	}
	return m.err
}

func (m *meter) leave() { m.depth-- }

// Kind says what sort of failure an Error is.
type Kind int

// The kinds.
const (
	Syntax    Kind = iota // the template is not in the language
	Runtime               // an operation that its values do not have
	Raised                // the template called raise_exception
	Exhausted             // a limit was reached
)

// Error is why a template cannot be parsed or rendered.
type Error struct {
	Kind   Kind
	Line   int    // of the template, from 1; 0 if unknown
	Reason string // with Raised, the template's own words
}

func (e *Error) Error() string {
	what := "chat template"
	if e.Line > 0 {
		what = fmt.Sprintf("chat template, line %d", e.Line)
	}
	if e.Kind == Exhausted {
		return what + ": stopped: " + e.Reason
	}
	return what + ": " + e.Reason
}

func exhausted(format string, args ...any) *Error {
	return &Error{Kind: Exhausted, Reason: fmt.Sprintf(format, args...)}
}

func failf(format string, args ...any) *Error {
	return &Error{Kind: Runtime, Reason: fmt.Sprintf(format, args...)}
}

// atLine names the line of the innermost statement that failed.
func atLine(err error, line int) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Line == 0 {
		e.Line = line
	}
	return err
}

// clip shortens text from outside before it goes into an error.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
