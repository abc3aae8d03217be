package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Setting is a named value that a cluster agrees on.
type Setting struct {
	Name    string
	Default string
	Allowed string // for people
	valid   func(string) bool
}

// settings is the table of what may be set. It is looked at before a change is made,
// never while one is applied: nodes with another table still come to the same state.
var settings = []Setting{
	number("slo_ttft_ms", 500, 1, 3_600_000),
	number("slo_itl_ms", 50, 1, 60_000),
	oneOf("disagg", "auto", "always", "never"),
	oneOf("planner", "auto", "advise", "off"),
	oneOf("preset", "cost", "dynamo", "round-robin", "random", "least-loaded"),
}

// KnownSettings is the table of settings, in the order in which people should see it.
func KnownSettings() []Setting { return slices.Clone(settings) }

// Value is the setting as it holds: what was set, or the default.
func (s State) Value(name string) string {
	if v, ok := s.Settings[name]; ok {
		return v
	}
	for _, known := range settings {
		if known.Name == name {
			return known.Default
		}
	}
	return ""
}

func number(name string, def, low, high int) Setting {
	return Setting{Name: name, Default: strconv.Itoa(def), Allowed: fmt.Sprintf("a whole number from %d to %d", low, high), valid: func(v string) bool {
		n, err := strconv.Atoi(v)
		return err == nil && n >= low && n <= high && strconv.Itoa(n) == v
	}}
}

// oneOf is a setting with few values; the first is the default.
func oneOf(name string, values ...string) Setting {
	return Setting{Name: name, Default: values[0], Allowed: "one of " + strings.Join(values, ", "), valid: func(v string) bool { return slices.Contains(values, v) }}
}

// validSettings checks the values of a change against the table and against the
// node's own opinion.
func validSettings(set map[string]string, more func(name, value string) error) error {
	for name, value := range set {
		at := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
		if at < 0 {
			known := make([]string, len(settings))
			for i, s := range settings {
				known[i] = s.Name
			}
			return &InvalidError{Field: "set", Value: name, Allowed: "one of " + strings.Join(known, ", ")}
		}
		if value == "" {
			continue
		}
		if s := settings[at]; !s.valid(value) {
			return &InvalidError{Field: name, Value: value, Allowed: s.Allowed}
		}
		if more != nil {
			if err := more(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}
