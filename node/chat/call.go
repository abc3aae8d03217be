package chat

import (
	"bytes"
	"encoding/json"
	"slices"
)

// objectScan finds the end of a JSON object in a text that grows, looking at each
// byte once. It counts brackets outside of strings and leaves the rest of JSON's
// rules to the decoder.
type objectScan struct {
	at     int // the next byte to look at
	depth  int
	quoted bool
	escape bool
}

// end returns where the object ends, or -1.
func (s *objectScan) end(text string) int {
	for ; s.at < len(text); s.at++ {
		c := text[s.at]
		switch {
		case s.escape:
			s.escape = false
		case s.quoted && c == '\\':
			s.escape = true
		case c == '"':
			s.quoted = !s.quoted
		case s.quoted:
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth == 0 {
				s.at++
				return s.at
			}
		}
	}
	return -1
}

// readCall reads the object of a call. If name is not empty the object is the
// arguments. It reports false if the object is not the call of a known tool with
// an object as its arguments.
func readCall(text, name string, names []string) (CallDelta, bool) {
	if name != "" {
		return callOf(name, json.RawMessage(text), names)
	}
	var object struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal([]byte(text), &object) != nil {
		return CallDelta{}, false
	}
	args := object.Arguments
	if args == nil {
		args = object.Parameters
	}
	// Some models write the arguments as text.
	var inner string
	if len(args) > 0 && args[0] == '"' && json.Unmarshal(args, &inner) == nil {
		args = json.RawMessage(inner)
	}
	return callOf(object.Name, args, names)
}

func callOf(name string, args json.RawMessage, names []string) (CallDelta, bool) {
	args = bytes.TrimSpace(args)
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	if !slices.Contains(names, name) || args[0] != '{' || !json.Valid(args) {
		return CallDelta{}, false
	}
	return CallDelta{Name: name, Arguments: string(args)}, true
}
