package grammar

import (
	"net/netip"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// reference is a plain validator of JSON Schema, written without regard to how
// grammars are made, for the keywords that are supported. Its one liberty is ours:
// oneOf is a union.
type reference struct{ root *value }

func (r reference) valid(s, v *value) bool {
	if s.kind != kindObject {
		return s.kind == kindTrue
	}
	for i, keyword := range s.keys {
		if !r.keyword(s, keyword, s.items[i], v) {
			return false
		}
	}
	return true
}

func (r reference) keyword(s *value, keyword string, arg, v *value) bool {
	switch keyword {
	case "$ref":
		return r.valid(r.root.lookup(arg.text[1:]), v)
	case "allOf":
		return r.countValid(arg.items, v) == len(arg.items)
	case "anyOf", "oneOf":
		return r.countValid(arg.items, v) > 0
	case "type":
		return isType(arg, v) || v.kind == kindNull && s.get("nullable") != nil
	case "enum":
		for _, e := range arg.items {
			if e.identity() == v.identity() {
				return true
			}
		}
		return false
	case "const":
		return arg.identity() == v.identity()
	}
	switch v.kind {
	case kindNumber:
		return numberKeyword(keyword, arg, v)
	case kindString:
		return stringKeyword(keyword, arg, v)
	case kindArray:
		return r.arrayKeyword(s, keyword, arg, v)
	case kindObject:
		return r.objectKeyword(s, keyword, arg, v)
	}
	return true
}

func (r reference) countValid(schemas []*value, v *value) int {
	n := 0
	for _, s := range schemas {
		if r.valid(s, v) {
			n++
		}
	}
	return n
}

func isType(arg, v *value) bool {
	if arg.kind == kindArray {
		for _, t := range arg.items {
			if isType(t, v) {
				return true
			}
		}
		return false
	}
	switch arg.text {
	case "null":
		return v.kind == kindNull
	case "boolean":
		return v.kind == kindFalse || v.kind == kindTrue
	case "number":
		return v.kind == kindNumber
	case "integer":
		d, err := parseDecimal(v.text)
		return v.kind == kindNumber && err == nil && d.fraction == ""
	case "string":
		return v.kind == kindString
	case "array":
		return v.kind == kindArray
	}
	return v.kind == kindObject
}

func numberKeyword(keyword string, arg, v *value) bool {
	a, errA := parseDecimal(arg.text)
	n, errN := parseDecimal(v.text)
	if errA != nil || errN != nil {
		return true
	}
	switch keyword {
	case "minimum":
		return n.compare(a) >= 0
	case "maximum":
		return n.compare(a) <= 0
	case "exclusiveMinimum":
		return n.compare(a) > 0
	case "exclusiveMaximum":
		return n.compare(a) < 0
	case "multipleOf": // 1, 0.1, 0.01 ...
		return len(n.fraction) <= len(a.fraction)
	}
	return true
}

func stringKeyword(keyword string, arg, v *value) bool {
	switch keyword {
	case "minLength":
		return utf8.RuneCountInString(v.text) >= number(arg)
	case "maxLength":
		return utf8.RuneCountInString(v.text) <= number(arg)
	case "pattern":
		return regexp.MustCompile(arg.text).MatchString(v.text)
	case "format":
		return validFormat(arg.text, v.text)
	}
	return true
}

func number(v *value) int {
	n := 0
	for _, c := range v.text {
		n = n*10 + int(c-'0')
	}
	return n
}

func validFormat(format, s string) bool {
	var err error
	switch format {
	case "date":
		_, err = time.Parse("2006-01-02", s)
	case "date-time":
		_, err = time.Parse(time.RFC3339Nano, s)
	case "time":
		_, err = time.Parse("15:04:05.999999999Z07:00", s)
	case "ipv4":
		var a netip.Addr
		a, err = netip.ParseAddr(s)
		return err == nil && a.Is4()
	case "ipv6":
		var a netip.Addr
		a, err = netip.ParseAddr(s)
		return err == nil && a.Is6()
	case "uuid":
		return regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`).MatchString(s)
	case "email":
		return regexp.MustCompile(`^[^@ ]+@([^.@ ]+\.)+[A-Za-z]{2,}$`).MatchString(s)
	}
	return err == nil
}

func (r reference) arrayKeyword(s *value, keyword string, arg, v *value) bool {
	switch keyword {
	case "minItems":
		return len(v.items) >= number(arg)
	case "maxItems":
		return len(v.items) <= number(arg)
	case "prefixItems":
		for i := range min(len(arg.items), len(v.items)) {
			if !r.valid(arg.items[i], v.items[i]) {
				return false
			}
		}
	case "items":
		from := 0
		if p := s.get("prefixItems"); p != nil {
			from = len(p.items)
		}
		for i := from; i < len(v.items); i++ {
			if !r.valid(arg, v.items[i]) {
				return false
			}
		}
	}
	return true
}

func (r reference) objectKeyword(s *value, keyword string, arg, v *value) bool {
	switch keyword {
	case "properties":
		for i, k := range v.keys {
			if p := arg.get(k); p != nil && !r.valid(p, v.items[i]) {
				return false
			}
		}
	case "required":
		for _, k := range arg.items {
			if v.get(k.text) == nil {
				return false
			}
		}
	case "additionalProperties":
		for i, k := range v.keys {
			if p := s.get("properties"); (p == nil || p.get(k) == nil) && !r.valid(arg, v.items[i]) {
				return false
			}
		}
	case "propertyNames":
		for _, k := range v.keys {
			if !r.valid(arg, &value{kind: kindString, text: k}) {
				return false
			}
		}
	case "minProperties":
		return len(v.keys) >= number(arg)
	case "maxProperties":
		return len(v.keys) <= number(arg)
	}
	return true
}

// longestBlank is the longest run of white space in text.
func longestBlank(text string) int {
	longest, run := 0, 0
	for _, r := range text {
		if !strings.ContainsRune(" \t\n\r\u00a0\u3000", r) {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
