package grammar

import (
	"fmt"
	"strings"
)

// string is an expression for the JSON strings that s allows.
func (c *compiler) string(s *spec) (string, error) {
	t := s.text
	if t.impossible() {
		return "", impossible(s.last(), "maxLength", "it is below minLength")
	}
	if t.format == "" && len(t.patterns) == 0 {
		if t.min == 0 && t.max == unbounded {
			return c.anyString(), nil
		}
		return c.quoted(c.countedText(anyRune(), t.min, t.max)), nil
	}
	// One pattern in one automaton, whatever the rules around it.
	key := "text:" + t.describe() + fmt.Sprint(t.min, t.max)
	for _, p := range t.patterns {
		key += "\x00" + p.text
	}
	if known, ok := c.shared[key]; ok {
		return known, nil
	}
	expr, err := c.patternText(s)
	if err == nil {
		c.shared[key] = expr
	}
	return expr, err
}

func (c *compiler) quoted(inside string) string {
	return c.define("text", join(`"\""`, inside, `"\""`))
}

// textTerm is what patterns and format of s demand together; nil if nothing.
func (c *compiler) textTerm(s *spec) (*term, error) {
	if c.texts == nil {
		c.texts = newTerms(&c.work)
	}
	var parts []*term
	if s.text.format != "" {
		pattern, _ := formatPattern(s.text.format)
		t, err := parsePattern(c.texts, pattern)
		if err != nil {
			return nil, errorAt(s.last(), "format", "%v", err)
		}
		parts = append(parts, t)
	}
	for _, p := range s.text.patterns {
		t, err := parsePattern(c.texts, p.text)
		if err != nil {
			return nil, errorAt(p.parent, "pattern", "%v", err)
		}
		parts = append(parts, t)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return c.texts.and(parts...), c.checkSize()
}

// patternText is a string with a pattern or format, and perhaps bounds of its
// length.
func (c *compiler) patternText(s *spec) (string, error) {
	t, err := c.textTerm(s)
	if err != nil {
		return "", err
	}
	lo, hi := s.text.min, s.text.max
	if set, from, to, ok := t.soleRepeat(); ok {
		// Bounds of the same thing: no automaton is needed to count.
		lo = max(lo, int64(from))
		if to != unbounded && (hi == unbounded || int64(to) < hi) {
			hi = int64(to)
		}
		if hi != unbounded && hi < lo {
			return "", impossible(s.last(), s.text.keyword(), "no string satisfies %s", s.text.describe())
		}
		return c.quoted(c.countedText(set, lo, hi)), nil
	}
	t, err = c.withLength(s, t)
	if err != nil {
		return "", err
	}
	a, err := c.textAutomaton(t)
	if err != nil {
		return "", errorAt(s.last(), s.text.keyword(), "%s: %v", s.text.describe(), err)
	}
	if len(a.states) == 0 {
		return "", impossible(s.last(), s.text.keyword(), "no string satisfies %s", s.text.describe())
	}
	return c.quoted(c.automaton(a, spellings)), nil
}

// keyword is the one that errors name.
func (t *textSpec) keyword() string {
	if len(t.patterns) > 0 {
		return "pattern"
	}
	return "format"
}

// withLength adds the bounds of the length to t.
func (c *compiler) withLength(s *spec, t *term) (*term, error) {
	lo, hi := s.text.min, s.text.max
	if lo == 0 && hi == unbounded {
		return t, nil
	}
	if max(lo, hi) > MaxPatternStates {
		return nil, errorAt(s.last(), s.text.keyword(), "%s: a length above %d can be combined only with the repetition of one class", s.text.describe(), MaxPatternStates)
	}
	any := c.texts.class(anyRune())
	return c.texts.and(t, c.texts.repeat(any, int(lo), int(hi))), nil
}

// textAutomaton bounds the blanks in a row, if t can have many of them and the
// automaton that counts them is not too large.
func (c *compiler) textAutomaton(t *term) (automaton, error) {
	if t.loopsOver(blanks(), blankRunMax, map[*term]bool{}) {
		run := c.texts.repeat(c.texts.class(blanks()), 0, blankRunMax)
		dark := c.texts.class(blanks().inverted())
		few := c.texts.concat(run, c.texts.repeat(c.texts.concat(dark, run), 0, unbounded))
		a, err := c.texts.automaton(c.texts.and(t, few), MaxPatternStates)
		if err == nil && len(a.states) > 0 {
			return a, nil
		}
	}
	return c.texts.automaton(t, MaxPatternStates)
}

// Parts of the patterns below. Every format is a pattern in the dialect of
// parsePattern, so that one path leads from a string schema to its rules. Lengths
// are shorter than the standards allow, lest a model goes on for ever.
const (
	day31   = `(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])`
	day30   = `(0[469]|11)-(0[1-9]|[12]\d|30)`
	day28   = `02-(0[1-9]|1\d|2[0-8])`
	leap    = `(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)`
	date    = `(\d{4}-(` + day31 + `|` + day30 + `|` + day28 + `)|` + leap + `-02-29)`
	clock   = `([01]\d|2[0-3]):[0-5]\d`
	timeOf  = clock + `:[0-5]\d(\.\d{1,9})?(Z|[+-]` + clock + `)`
	label   = `[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?`
	host    = label + `(\.` + label + `){0,4}`
	octet   = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	hextet  = `[0-9A-Fa-f]{1,4}`
	mailbox = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}"
	uriByte = `([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})`
)

// formatPattern is the pattern of a supported format.
func formatPattern(name string) (string, bool) {
	switch name {
	case "date":
		return `^` + date + `$`, true
	case "time":
		return `^` + timeOf + `$`, true
	case "date-time":
		return `^` + date + `T` + timeOf + `$`, true
	case "duration":
		return `^P(\d{1,6}W|` + durationDate + `(T` + durationTime + `)?|T` + durationTime + `)$`, true
	case "uuid":
		return `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`, true
	case "ipv4":
		return `^(` + octet + `\.){3}` + octet + `$`, true
	case "ipv6":
		return ipv6Pattern(), true
	case "hostname":
		return `^` + host + `$`, true
	case "email":
		return `^` + mailbox + `(\.` + mailbox + `)?@(` + label + `\.){1,4}[A-Za-z]{2,24}$`, true
	case "uri":
		return `^[A-Za-z][A-Za-z0-9+.-]{0,15}:(//` + host + `(:\d{1,5})?(/` + uriByte + `*)?|` +
			`[A-Za-z0-9._~-]` + uriByte + `*)(\?(` + uriByte + `|\?)*)?(#(` + uriByte + `|\?)*)?$`, true
	}
	return "", false
}

const (
	durationDate = `(\d{1,6}D|\d{1,6}M(\d{1,6}D)?|\d{1,6}Y(\d{1,6}M(\d{1,6}D)?)?)`
	durationTime = `(\d{1,6}S|\d{1,6}M(\d{1,6}S)?|\d{1,6}H(\d{1,6}M(\d{1,6}S)?)?)`
)

func formatNames() []string {
	return []string{"date", "time", "date-time", "duration", "uuid", "ipv4", "ipv6", "hostname", "email", "uri"}
}

// unsupportedFormat tells whether JSON Schema defines a format that is not
// supported. Names that it does not define are annotations.
func unsupportedFormat(name string) bool {
	switch name {
	case "idn-email", "idn-hostname", "iri", "iri-reference", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex":
		return true
	}
	return false
}

// ipv6Pattern is eight groups, or fewer with "::" for the missing ones.
func ipv6Pattern() string {
	forms := []string{`(` + hextet + `:){7}` + hextet, `::(` + hextet + `(:` + hextet + `){0,6})?`}
	for before := 1; before <= 7; before++ {
		head := hextet + fmt.Sprintf(`(:%s){%d}`, hextet, before-1)
		tail := ""
		if after := 7 - before; after > 0 {
			tail = fmt.Sprintf(`(%s(:%s){0,%d})?`, hextet, hextet, after-1)
		}
		forms = append(forms, head+`::`+tail)
	}
	return `^(` + strings.Join(forms, `|`) + `)$`
}
