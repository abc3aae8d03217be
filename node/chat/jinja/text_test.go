package jinja

import (
	"strings"
	"testing"
)

// marked shows foreign text between ‹ and ›.
func marked(t Text) string {
	var b strings.Builder
	t.runs(func(s string, foreign bool) {
		if foreign {
			s = "‹" + s + "›"
		}
		b.WriteString(s)
	})
	return b.String()
}

func TestForeignTextStaysForeign(t *testing.T) {
	vars := map[string]Value{
		"u": Foreign("user text"),
		"v": Foreign("  a</t>b\n\"q\" "),
		"o": Own("own"),
	}
	args, err := FromJSON([]byte(`{"key": "val", "n": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	vars["args"] = args
	for _, c := range []struct{ src, want string }{
		{"{{ u }}", "‹user text›"},
		{"[{{ u }}]", "[‹user text›]"},
		{"{{ o + u + o }}", "own‹user text›own"},
		{"{{ u ~ u }}", "‹user textuser text›"},
		{"{{ 'a' ~ u[2:6] ~ 'b' }}", "a‹er t›b"},
		{"{{ (o + u)[1:6] }}", "wn‹use›"},
		{"{{ (o + u)[::-1] }}", "‹txet resu›nwo"},
		{"{{ (o + u)[3] }}{{ (o + u)[-1] }}{{ (o + u)[0] }}", "‹ut›o"},
		{"{{ (o + u) | upper }}", "OWN‹USER TEXT›"},
		{"{{ (o + u) | title }}", "Own‹user Text›"},
		{"{{ v | trim }}", "‹a</t>b\n\"q\"›"},
		{"{{ v.split('</t>') | join('|') }}", "‹  a›|‹b\n\"q\" ›"},
		{"{{ (o ~ ' ' ~ u).split() | join('+') }}", "own+‹user›+‹text›"},
		{"{{ u.replace('user', o) }}", "own‹ text›"},
		{"{{ o.replace('w', u) }}", "o‹user text›n"},
		{"{{ u | tojson }}", `"‹user text›"`},
		{"{{ v | tojson }}", `"‹  a</t>b\n\"q\" ›"`},
		{"{{ args | tojson }}", `{"‹key›": "‹val›", "‹n›": 1}`},
		{"{{ args }}", `{'‹key›': '‹val›', '‹n›': 1}`},
		{"{% for k, v in args | items %}{{ k }}={{ v }};{% endfor %}", "‹key›=‹val›;‹n›=1;"},
		{"{% for c in 'a' + u[:2] %}{{ c }}.{% endfor %}", "a.‹u›.‹s›."},
		{"{% set x %}<{{ u }}>{% endset %}{{ x }}", "<‹user text›>"},
		{"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}{{ m('z') }}", "<‹user text›><z>"},
		{"{% filter upper %}a{{ u }}{% endfilter %}", "A‹USER TEXT›"},
		{"{{ '%s!' % u }}{{ '<{}>'.format(u) }}", "‹user text›!<‹user text›>"},
		{"{{ [u, 'x'] | join(', ') }}", "‹user text›, x"},
		{"{{ u | indent(2) }}{{ ('a\n' + u) | indent(2) }}", "‹user text›a\n  ‹user text›"},
		{"{{ u.center(11, '*') }}", "*‹user text›*"},
		{"{{ u * 2 }}", "‹user textuser text›"},
		{"{{ u.partition(' ') | join('/') }}", "‹user›/ /‹text›"},
		{"{{ namespace(x=u).x }}{{ {'k': u}.k }}{{ [u][0] }}", "‹user textuser textuser text›"},
		{"{{ u | length }}{{ u == 'user text' }}{{ 'text' in u }}", "9TrueTrue"},
		{"{{ u | e }}{{ '<' ~ u | e }}", "‹user text›<‹user text›"},
		{"{{ missing | default(u) }}{{ u | string | safe | list | first }}", "‹user textu›"},
		{"{{ ['b' + u, 'a' + u] | sort | first }}{{ [u, u] | unique | join }}", "a‹user textuser text›"},
		{"{{ u | truncate(8, true, '…', 0) }}", "‹user te›…"},
		{"{{ u.removeprefix('user') }}{{ u.strip('ut') }}", "‹ textser tex›"},
	} {
		got, err := renderSource(c.src, vars, Limits{})
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		if m := marked(got); m != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.src, m, c.want)
		}
	}
}

func TestFromJSON(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"b": 1, "a": [true, null, 1.5]}`, `{"b": 1, "a": [true, null, 1.5]}`},
		{`18446744073709551615`, `18446744073709551615`},
		{`-3`, `-3`},
		{`1e3`, `1000.0`},
		{`{"a": 1, "b": 2, "a": 3}`, `{"a": 3, "b": 2}`},
		{`"\u00e9\n"`, `"é\n"`},
	} {
		v, err := FromJSON([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		got, err := renderSource("{{ v | tojson }}", map[string]Value{"v": v}, Limits{})
		if err != nil || got.String() != c.want {
			t.Errorf("%s gives %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{``, `{`, `{"a":1}{"b":2}`, `[1,]`, `nope`, strings.Repeat("[", 200) + strings.Repeat("]", 200)} {
		if v, err := FromJSON([]byte(in)); err == nil {
			t.Errorf("%q gives %v", in, v)
		}
	}
}

// check fails if the spans of a text break their invariant.
func check(t *testing.T, x Text) {
	t.Helper()
	at := -1
	for _, sp := range x.foreign {
		if sp.Start <= at || sp.End <= sp.Start || sp.End > len(x.s) {
			t.Fatalf("the spans %v of a text of %d bytes are not in order", x.foreign, len(x.s))
		}
		at = sp.End
	}
}

func FuzzRender(f *testing.F) {
	vars, cases := readSnippets(f)
	for _, c := range cases {
		f.Add(c.Src, "user text")
	}
	f.Add("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}{{ l | tojson }}{{ l == l }}", "x")
	f.Add("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "<|im_end|>")
	limits := Limits{Steps: 20_000, Bytes: 1 << 20, Output: 1 << 18, Depth: 200, Time: defaultTime}
	f.Fuzz(func(t *testing.T, src, user string) {
		tpl, err := Parse(src)
		if err != nil {
			return
		}
		v := testVars(t, vars)
		v["s"] = Foreign(strings.ToValidUTF8(user, "?"))
		out, err := tpl.Render(t.Context(), v, Options{Now: testNow, Limits: limits})
		if err != nil {
			return
		}
		check(t, out)
	})
}
