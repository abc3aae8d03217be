package gguf

import "fmt"

// FormatError refuses a file. Reason holds the value and what is allowed, and
// goes on from the field's name: "is 3, allowed are powers of two".
type FormatError struct {
	Field  string
	Reason string
}

func (e *FormatError) Error() string { return "GGUF: " + e.Field + " " + e.Reason }

func refuse(field, format string, args ...any) *FormatError {
	return &FormatError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// quote shows text of a file in a message: shortened, in ASCII, without control
// bytes.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return fmt.Sprintf("%+q…", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}
