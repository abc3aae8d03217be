package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type textFunc = func(f *frame, t Text, a args) (Value, error)

// textMethod is the method of strings with that name, or nil.
func textMethod(name string) textFunc {
	switch name {
	case "strip":
		return strip(true, true)
	case "lstrip":
		return strip(true, false)
	case "rstrip":
		return strip(false, true)
	case "split":
		return split(false)
	case "rsplit":
		return split(true)
	case "splitlines":
		return splitLines
	case "partition":
		return partition(false)
	case "rpartition":
		return partition(true)
	case "startswith":
		return affix("startswith", strings.HasPrefix)
	case "endswith":
		return affix("endswith", strings.HasSuffix)
	case "removeprefix":
		return removePrefix
	case "removesuffix":
		return removeSuffix
	case "replace":
		return replaceMethod
	case "find":
		return find("find", strings.Index, false)
	case "rfind":
		return find("rfind", strings.LastIndex, false)
	case "index":
		return find("index", strings.Index, true)
	case "rindex":
		return find("rindex", strings.LastIndex, true)
	case "count":
		return countMethod
	case "join":
		return joinMethod
	case "lower":
		return caseMethod(strings.ToLower)
	case "casefold":
		return caseMethod(strings.ToLower)
	case "upper":
		return caseMethod(strings.ToUpper)
	case "swapcase":
		return caseMethod(swapCase)
	case "title":
		return func(f *frame, t Text, _ args) (Value, error) { return f.titled(t, notLetter), nil }
	case "capitalize":
		return func(f *frame, t Text, _ args) (Value, error) { return f.capitalized(t), nil }
	case "center":
		return pad("center", func(n, width int) int { return n/2 + n&width&1 })
	case "ljust":
		return pad("ljust", func(int, int) int { return 0 })
	case "rjust":
		return pad("rjust", func(n, _ int) int { return n })
	case "zfill":
		return zeroFill
	case "format":
		return formatMethod
	}
	return textPredicate(name)
}

// textPredicate is one of the is... methods, or nil.
func textPredicate(name string) textFunc {
	every := func(holds func(rune) bool) textFunc {
		return func(f *frame, t Text, _ args) (Value, error) {
			f.m.spend(len(t.s)/bytesPerStep, 0)
			return t.s != "" && strings.IndexFunc(t.s, func(r rune) bool { return !holds(r) }) < 0, nil
		}
	}
	switch name {
	case "isdigit", "isdecimal", "isnumeric":
		return every(unicode.IsDigit)
	case "isalpha":
		return every(unicode.IsLetter)
	case "isalnum":
		return every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	case "isspace":
		return every(isSpace)
	case "isascii":
		return func(_ *frame, t Text, _ args) (Value, error) {
			return strings.IndexFunc(t.s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0, nil
		}
	case "isupper":
		return cased(strings.ToUpper)
	case "islower":
		return cased(strings.ToLower)
	}
	return nil
}

// cased holds if a text has letters with case and all of them have this one.
func cased(to func(string) string) textFunc {
	return func(f *frame, t Text, _ args) (Value, error) {
		return isCased(f, t, to), nil
	}
}

func isCased(f *frame, t Text, to func(string) string) bool {
	f.m.spend(len(t.s)/bytesPerStep, 0)
	return to(t.s) == t.s && strings.ToUpper(t.s) != strings.ToLower(t.s)
}

func caseMethod(change func(string) string) textFunc {
	return func(f *frame, t Text, _ args) (Value, error) { return f.m.mapText(t, change), nil }
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) }

// titled makes the first letter of each word upper case and the others lower
// case; a word begins after a character that is a border.
func (f *frame) titled(t Text, border func(rune) bool) Text {
	atBorder := true
	return f.m.mapText(t, func(s string) string {
		return strings.Map(func(r rune) rune {
			first := atBorder
			atBorder = border(r)
			if first {
				return unicode.ToTitle(r)
			}
			return unicode.ToLower(r)
		}, s)
	})
}

func (f *frame) capitalized(t Text) Text {
	return f.titled(t, func(rune) bool { return false })
}

// strip removes characters (whitespace by default) from the ends.
func strip(left, right bool) textFunc {
	return func(f *frame, t Text, a args) (Value, error) {
		p, err := a.bind("strip", "chars")
		if err != nil {
			return nil, err
		}
		drop := isSpace
		if given(p[0]) && p[0] != nil {
			chars, err := orText("strip", p[0], "")
			if err != nil {
				return nil, err
			}
			f.m.spend(len(chars.s)*len(t.s)/bytesPerStep, 0)
			drop = func(r rune) bool { return strings.ContainsRune(chars.s, r) }
		}
		return f.trimmed(t, left, right, drop), nil
	}
}

func (f *frame) trimmed(t Text, left, right bool, drop func(rune) bool) Text {
	if f.m.err != nil {
		return Text{}
	}
	i, j := 0, len(t.s)
	if left {
		i = len(t.s) - len(strings.TrimLeftFunc(t.s, drop))
	}
	if right {
		j = max(i, len(strings.TrimRightFunc(t.s, drop)))
	}
	return f.m.sub(t, i, j)
}

func affix(name string, has func(s, affix string) bool) textFunc {
	return func(_ *frame, t Text, a args) (Value, error) {
		p, err := a.bind(name, "affix")
		if err != nil {
			return nil, err
		}
		options := p
		if l, ok := p[0].(*List); ok && l.tuple {
			options = l.items
		}
		for _, o := range options {
			s, err := needText(name, o)
			if err != nil {
				return nil, err
			}
			if has(t.s, s.s) {
				return true, nil
			}
		}
		return false, nil
	}
}

func removePrefix(f *frame, t Text, a args) (Value, error) {
	p, err := a.bind("removeprefix", "prefix")
	if err != nil {
		return nil, err
	}
	s, err := needText("removeprefix", p[0])
	if err != nil || !strings.HasPrefix(t.s, s.s) {
		return t, err
	}
	return f.m.sub(t, len(s.s), len(t.s)), nil
}

func removeSuffix(f *frame, t Text, a args) (Value, error) {
	p, err := a.bind("removesuffix", "suffix")
	if err != nil {
		return nil, err
	}
	s, err := needText("removesuffix", p[0])
	if err != nil || !strings.HasSuffix(t.s, s.s) {
		return t, err
	}
	return f.m.sub(t, 0, len(t.s)-len(s.s)), nil
}

func replaceMethod(f *frame, t Text, a args) (Value, error) {
	p, err := a.bind("replace", "old", "new", "count")
	if err != nil {
		return nil, err
	}
	from, err := needText("replace", p[0])
	if err != nil {
		return nil, err
	}
	to, err := needText("replace", p[1])
	if err != nil {
		return nil, err
	}
	if p[2] == nil {
		p[2] = absent{}
	}
	most, err := orInt("replace", p[2], -1)
	if err != nil {
		return nil, err
	}
	return f.replaced(t, from.s, to, most), nil
}

// replaced puts to in the place of each from, at most so many times if most is
// not negative.
func (f *frame) replaced(t Text, from string, to Text, most int64) Text {
	b := f.m.newBuilder()
	at, search := 0, 0
	for n := int64(0); n != most && f.m.spend(1, 0); n++ {
		i := strings.Index(t.s[search:], from)
		if i < 0 {
			break
		}
		i += search
		b.text(f.m.sub(t, at, i))
		b.text(to)
		at = i + len(from)
		search = at
		if from == "" { // between all characters, and at both ends
			if at == len(t.s) {
				break
			}
			_, size := utf8.DecodeRuneInString(t.s[at:])
			search += size
		}
	}
	f.m.spend(len(t.s)/bytesPerStep, 0)
	b.text(t.slice(at, len(t.s)))
	return b.done()
}

func find(name string, index func(s, sub string) int, must bool) textFunc {
	return func(f *frame, t Text, a args) (Value, error) {
		p, err := a.bind(name, "sub")
		if err != nil {
			return nil, err
		}
		sub, err := needText(name, p[0])
		if err != nil {
			return nil, err
		}
		f.m.spend(1+len(t.s)/bytesPerStep, 0)
		i := index(t.s, sub.s)
		if i < 0 && must {
			return nil, failf("substring not found")
		}
		if i > 0 {
			i = utf8.RuneCountInString(t.s[:i])
		}
		return int64(i), nil
	}
}

func countMethod(f *frame, t Text, a args) (Value, error) {
	p, err := a.bind("count", "sub")
	if err != nil {
		return nil, err
	}
	sub, err := needText("count", p[0])
	f.m.spend(1+len(t.s)/bytesPerStep, 0)
	return int64(strings.Count(t.s, sub.s)), err
}

func joinMethod(f *frame, t Text, a args) (Value, error) {
	p, err := a.bind("join", "iterable")
	if err != nil {
		return nil, err
	}
	items, err := f.iterate(p[0])
	if err != nil {
		return nil, err
	}
	b := f.m.newBuilder()
	for i, item := range items {
		s, err := needText("join", item)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.text(t)
		}
		b.text(s)
	}
	return b.done(), nil
}

// pad fills up to a width; left is how many of n fillers go before the text.
func pad(name string, left func(n, width int) int) textFunc {
	return func(f *frame, t Text, a args) (Value, error) {
		p, err := a.bind(name, "width", "fillchar")
		if err != nil {
			return nil, err
		}
		width, err := orInt(name, p[0], 0)
		if err != nil {
			return nil, err
		}
		fill, err := orText(name, p[1], " ")
		if err != nil {
			return nil, err
		}
		n := width - int64(utf8.RuneCountInString(t.s))
		if n <= 0 {
			return t, nil
		}
		if err := f.affordTimes(1+len(fill.s), n); err != nil {
			return nil, err
		}
		before := left(int(n), int(width))
		b := f.m.newBuilder()
		for i := range int(n) {
			if i == before {
				b.text(t)
			}
			b.text(fill)
		}
		if before == int(n) {
			b.text(t)
		}
		return b.done(), nil
	}
}

func zeroFill(f *frame, t Text, a args) (Value, error) {
	p, err := a.bind("zfill", "width")
	if err != nil {
		return nil, err
	}
	width, err := orInt("zfill", p[0], 0)
	if err != nil {
		return nil, err
	}
	n := max(width-int64(utf8.RuneCountInString(t.s)), 0)
	if err := f.affordTimes(1, n); err != nil {
		return nil, err
	}
	sign := 0
	if t.s != "" && (t.s[0] == '-' || t.s[0] == '+') {
		sign = 1
	}
	return f.m.concat(t.slice(0, sign), Own(strings.Repeat("0", int(n))), t.slice(sign, len(t.s))), nil
}
