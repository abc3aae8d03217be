package grammar

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Error refuses a schema.
type Error struct {
	Path    string // JSON pointer to the subschema; "" is the whole schema
	Keyword string // the keyword at fault; "" if it is none in particular
	Reason  string // what is wrong and what is allowed
}

func (e *Error) Error() string {
	msg := "schema"
	if e.Path != "" {
		msg += " at " + clip(e.Path)
	}
	if e.Keyword != "" {
		msg += fmt.Sprintf(": keyword %q", e.Keyword)
	}
	return msg + ": " + e.Reason
}

// SyntaxError refuses a GBNF grammar.
type SyntaxError struct {
	Line   int    // from 1; 0 if the fault has no place
	Rule   string // the rule at fault; "" if none
	Reason string
}

func (e *SyntaxError) Error() string {
	msg := "grammar"
	if e.Line > 0 {
		msg += fmt.Sprintf(" line %d", e.Line)
	}
	if e.Rule != "" {
		msg += fmt.Sprintf(": rule %q", clip(e.Rule))
	}
	return msg + ": " + e.Reason
}

// clip shortens text from outside before it goes into a message.
func clip(s string) string {
	if len(s) <= messageMax {
		return s
	}
	end := messageMax
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

var errTooMuchWork = errors.New("it is too complex")
