package jinja

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hostileMemory bounds what a stopped render may have allocated over its whole
// run, most of it freed again: the byte budget, the growth of buffers, and small
// values that are charged as steps only.
const hostileMemory = 224 << 20

func TestHostileTemplatesAreStopped(t *testing.T) {
	cases := []struct{ name, src string }{
		{"nested loops without output", "{% for r in range(700) %}{% for s in range(700) %}{% for t in range(700) %}{% endfor %}{% endfor %}{% endfor %}"},
		{"long range", "{% for r in range(900000000) %}.{% endfor %}"},
		{"long range as a list", "{{ range(9000000000) | list | length }}"},
		{"repeated text", "{{ 'a' * 2000000000 }}"},
		{"repeated list", "{{ ([1] * 2000000000) | length }}"},
		{"overflowing repeat", "{{ 'abcdefgh' * 9223372036854775807 }}"},
		{"replace bomb", "{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}"},
		{"replace filter bomb", "{% set x = 'a' * 1000000 %}{{ x | replace('a', x) }}"},
		{"empty replace bomb", "{% set x = 'a' * 1000000 %}{{ x.replace('', x) }}"},
		{"join bomb", "{% set x = 'a' * 1000000 %}{{ x.join(x) }}"},
		{"join filter bomb", "{% set x = 'a' * 1000000 %}{{ x | join(x) }}"},
		{"center", "{{ 'a'.center(2000000000) }}"},
		{"center filter", "{{ 'a' | center(2000000000) }}"},
		{"zfill", "{{ 'a'.zfill(2000000000) }}"},
		{"doubling text", "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}"},
		{"doubling by tilde", "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"},
		{"doubling list", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"},
		{"doubling by capture", "{% set x = 'aaaaaaaa' %}{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% else %}aaaaaaaa{% endif %}{% endmacro %}{{ f(60) }}"},
		{"macro that calls itself", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"},
		{"two macros that call each other", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"},
		{"caller that calls itself", "{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{% call a() %}{{ b() }}{% endcall %}{% endmacro %}{{ b() }}"},
		{"recursive loop", "{% set l = [] %}{% set _ = l.append(l) %}{% for x in l recursive %}{{ loop(x) }}{% endfor %}"},
		{"list in itself, printed", "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}"},
		{"list in itself, as JSON", "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}"},
		{"list in itself, indented", "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson(indent=1000) }}"},
		{"list in itself, compared", "{% set l = [] %}{% set m = [] %}{% set _ = l.append(m) %}{% set _ = m.append(l) %}{{ l == m }}{{ l < m }}"},
		{"namespace in itself", "{% set n = namespace() %}{% set n.n = n %}{{ n }}"},
		{"wide list of itself", "{% set l = [] %}{% for i in range(20) %}{% set _ = l.append(l) %}{% endfor %}{{ l }}"},
		{"deep list", "{% set n = namespace(l=[]) %}{% for i in range(90000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"},
		{"long sum", "{{ 1" + strings.Repeat("+1", 60000) + " }}"},
		{"long filter chain", "{{ 1" + strings.Repeat("|abs", 50000) + " }}"},
		{"long attribute chain", "{{ dict" + strings.Repeat("[0]", 80000) + " }}"},
		{"brackets", "{{ " + strings.Repeat("(", 100000) + " }}"},
		{"lists", "{{ " + strings.Repeat("[", 100000) + " }}"},
		{"minus signs", "{{ " + strings.Repeat("-", 100000) + "1 }}"},
		{"nots", "{{ " + strings.Repeat("not ", 60000) + "1 }}"},
		{"conditions", "{{ " + strings.Repeat("1 if 1 else ", 20000) + "1 }}"},
		{"blocks", strings.Repeat("{% if 1 %}", 25000)},
		{"targets", "{% set " + strings.Repeat("(", 100000) + " %}"},
		{"power", "{{ 10 ** 1000000000 }}"},
		{"printf width", "{{ '%1000000000d' % 1 }}"},
		{"printf precision", "{{ '%.1000000000f' | format(1) }}"},
		{"indent width", "{{ 'a\nb' | indent(1000000000) }}"},
		{"JSON indent", "{{ [[1]] | tojson(indent=1000000000) }}"},
		{"batch", "{{ [1] | batch(1000000000, 0) }}"},
		{"searching a long text", "{% set x = 'a' * 8000000 %}{% for i in range(90000) %}{% if 'b' in x %}{% endif %}{% endfor %}"},
		{"comparing long texts", "{% set x = 'a' * 8000000 %}{% set y = 'a' * 8000000 %}{% for i in range(90000) %}{% if x == y %}{% endif %}{% endfor %}"},
		{"measuring a long text", "{% set x = 'a' * 8000000 %}{% for i in range(90000) %}{% if x | length %}{% endif %}{% endfor %}"},
		{"indexing a long text", "{% set x = 'a' * 8000000 %}{% for i in range(90000) %}{% if x[-1] %}{% endif %}{% endfor %}"},
		{"slicing a long list", "{% set x = range(100000) %}{% for i in range(90000) %}{% set y = x[::-1] %}{% endfor %}"},
		{"stripping with a long set", "{% set x = 'a' * 4000000 %}{{ x.strip(x) }}"},
		{"sorting", "{% for i in range(90000) %}{% set y = range(100000) | sort %}{% endfor %}"},
		{"reversing", "{% for i in range(90000) %}{% set y = range(100000) | reverse %}{% endfor %}"},
		{"upper", "{% set x = 'a' * 8000000 %}{% for i in range(90000) %}{% set y = x | upper %}{% endfor %}"},
		{"splitting", "{% set x = 'a ' * 8000000 %}{% for i in range(90000) %}{% set y = x.split() %}{% endfor %}"},
		{"characters", "{% set x = 'a' * 8000000 %}{{ x | list | length }}"},
		{"many variables", "{% for i in range(100000) %}{% set a, b, c, d, e, f = i, i, i, i, i, i %}{{ i }}{{ i }}{{ i }}{% endfor %}{% for i in range(100000) %}{{ i * i }}{{ i }}{{ i }}{{ i }}{% endfor %}{% for i in range(100000) %}{{ i * i }}{{ i }}{{ i }}{{ i }}{% endfor %}"},
		{"big dict", "{% set n = namespace(d={}) %}{% for i in range(100000) %}{% set _ = n.d.update({i: i}) %}{% endfor %}{% for i in range(100000) %}{% set _ = n.d.pop(i) %}{% endfor %}"},
		{"inserting", "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.insert(0, i) %}{% endfor %}"},
		{"macro arguments", "{% macro f() %}{{ varargs | length }}{% endmacro %}{% for i in range(90000) %}{{ f(*range(100000)) }}{% endfor %}"},
		{"output", "{% set x = 'a' * 1000000 %}{% for i in range(100) %}{{ x }}{% endfor %}"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := renderSource(c.src, nil, Limits{})
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("the template was not stopped")
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Line != 1 && e.Line != 2 {
				t.Errorf("the error is %#v, not an *Error with a line", err)
			}
			if len(err.Error()) > 400 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > hostileMemory {
				t.Errorf("it allocated %d MiB", used>>20)
			}
		})
	}
}

func TestNothingButValuesIsReachable(t *testing.T) {
	for _, src := range []string{
		"{% include '../../../secret' %}",
		"{% import 'x' as x %}",
		"{% from 'x' import y %}",
		"{% extends 'x' %}",
		"{{ messages.__class__.__mro__ }}",
		"{{ ''.__class__.__base__ }}",
		"{{ self.__init__ }}{{ self._TemplateReference__context }}",
		"{{ cycler.__init__.__globals__ }}",
		"{{ range.call() }}",
		"{{ namespace().d.keys() }}",
		"{{ dict.name.x }}",
		"{{ {}.index.x }}",
	} {
		if got, err := renderSource(src, nil, Limits{}); err == nil {
			t.Errorf("%s renders %q", src, got)
		}
	}
}

func TestRaisedReasonIsKept(t *testing.T) {
	_, err := renderSource("\n{{ raise_exception('only one system message') }}", nil, Limits{})
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != Raised || e.Line != 2 || e.Reason != "only one system message" {
		t.Errorf("got %#v", err)
	}
}

func TestLimits(t *testing.T) {
	loops := "{% for i in range(1000) %}{{ i }}{% endfor %}"
	ample := DefaultLimits()
	for _, c := range []struct {
		name, word string
		change     func(*Limits)
	}{
		{"steps", "steps", func(l *Limits) { l.Steps = 1000 }},
		{"bytes", "bytes", func(l *Limits) { l.Bytes = 1000 }},
		{"output", "writes more", func(l *Limits) { l.Output = 1000 }},
		{"depth", "levels", func(l *Limits) { l.Depth = 2 }},
		{"time", "takes more than -1ns", func(l *Limits) { l.Time = -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ample
			c.change(&l)
			_, err := renderSource(loops, nil, l)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Kind != Exhausted || !strings.Contains(e.Reason, c.word) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := renderSource(loops, nil, ample); err != nil {
		t.Errorf("with the default limits: %v", err)
	}
}

func TestCancelledRender(t *testing.T) {
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	tpl, err := Parse("{% for i in range(50000) %}{{ i }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = tpl.Render(ctx, nil, Options{Now: time.Now()}); !errors.Is(err, gone) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

func TestSourceLimits(t *testing.T) {
	for name, src := range map[string]string{
		"too long": strings.Repeat("a", maxSource+1),
		"not text": "\xff",
	} {
		if _, err := Parse(src); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
}
