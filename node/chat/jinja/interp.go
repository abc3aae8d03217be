package jinja

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"
)

// maxSource is ten times the largest template found in a published model.
const maxSource = 256 << 10

// Template is a parsed template.
type Template struct{ body []node }

// Options of one render.
type Options struct {
	Now    time.Time // what strftime_now tells
	Limits Limits    // zero: DefaultLimits
}

// Parse reads a template. Its errors are *Error of kind Syntax.
func Parse(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &Error{Kind: Syntax, Reason: failf("it has %d bytes; at most %d are read", len(source), maxSource).Reason}
	}
	if !utf8.ValidString(source) {
		return nil, &Error{Kind: Syntax, Reason: "it is not valid UTF-8"}
	}
	toks, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks}
	body, err := p.root()
	if err != nil {
		return nil, err
	}
	return &Template{body: body}, nil
}

// Render runs the template with vars as its variables. The errors are *Error, or
// the cause of ctx.
func (t *Template) Render(ctx context.Context, vars map[string]Value, o Options) (Text, error) {
	limits := o.Limits
	if limits == (Limits{}) {
		limits = DefaultLimits()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Time, errTime)
	defer cancel()
	m := newMeter(ctx, limits)
	out := m.newBuilder()
	globals := &scope{vars: globalValues(o.Now)}
	given := &scope{vars: vars, parent: globals}
	f := &frame{m: m, scope: &scope{parent: given}, out: out}
	err := f.run(t.body)
	if err == nil {
		err = m.err
	}
	if err != nil {
		return Text{}, err
	}
	return out.done(), nil
}

// scope holds the variables of one block; names that it does not have are looked
// up in its parent.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func (s *scope) get(name string) (Value, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// frame is where a piece of template runs: with which variables, into which output.
type frame struct {
	m     *meter
	scope *scope
	out   *builder
}

// inner is the frame with a new scope.
func (f *frame) inner() *frame {
	return &frame{m: f.m, scope: &scope{parent: f.scope}, out: f.out}
}

func (f *frame) set(name string, v Value) {
	if !f.m.spend(1, entryBytes) {
		return
	}
	if f.scope.vars == nil {
		f.scope.vars = make(map[string]Value, 4)
	}
	f.scope.vars[name] = v
}

// capture runs a body with its own output.
func (f *frame) capture(body []node) (Text, error) {
	sub := &frame{m: f.m, scope: f.scope, out: f.m.newBuilder()}
	if err := sub.run(body); err != nil {
		return Text{}, err
	}
	return sub.out.done(), f.m.err
}

// run executes statements in order.
func (f *frame) run(body []node) error {
	err := f.m.enter()
	defer f.m.leave()
	if err != nil {
		return err
	}
	for i := range body {
		if err := f.m.afford(1, 0); err != nil {
			return atLine(err, body[i].line)
		}
		if err := body[i].s.exec(f); err != nil {
			return atLine(err, body[i].line)
		}
	}
	return nil
}

func (f *frame) eval(e expr) (Value, error) {
	err := f.m.enter()
	defer f.m.leave()
	if err == nil {
		err = f.m.afford(1, 0)
	}
	if err != nil {
		return nil, err
	}
	return e.eval(f)
}

// iterate returns the elements of a value.
func (f *frame) iterate(v Value) ([]Value, error) {
	switch v := v.(type) {
	case *List:
		return v.items, f.m.afford(1, 0)
	case *Dict:
		return v.keys, f.m.afford(1, 0)
	case Text:
		return f.chars(v)
	case Undefined:
		return nil, nil
	}
	return nil, failf("'%s' object is not iterable", typeName(v))
}

func (f *frame) chars(t Text) ([]Value, error) {
	n := utf8.RuneCountInString(t.s)
	if err := f.m.afford(n, n*(itemBytes+textBytes)); err != nil {
		return nil, err
	}
	items := make([]Value, 0, n)
	for i := 0; i < len(t.s); {
		_, size := utf8.DecodeRuneInString(t.s[i:])
		items = append(items, t.slice(i, i+size))
		i += size
	}
	return items, nil
}

// newList makes a list and charges for it.
func (f *frame) newList(items []Value) (*List, error) {
	if err := f.m.afford(1, itemBytes*len(items)); err != nil {
		return nil, err
	}
	return &List{items: items}, nil
}

var (
	errBreak    = errors.New("break outside of a loop")
	errContinue = errors.New("continue outside of a loop")
)
