package api

import (
	"net/http"
	"strings"
)

// requestID is the header with the id under which the log has a request.
const requestID = "X-Tandem-Request-Id"

// headerText makes text fit for a header: printable ASCII, at most limit bytes.
func headerText(s string, limit int) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() == limit {
			break
		}
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r < 0x20 || r > 0x7e:
			b.WriteByte('?')
		default:
			b.WriteByte(byte(r))
		}
	}
	return strings.TrimSpace(b.String())
}

// setWarning names the fields that changed nothing, and whatever else a client
// should know although its request was served.
func setWarning(w http.ResponseWriter, unknown, warnings []string) {
	if len(unknown) > 0 {
		warnings = append([]string{"unknown fields without effect: " + strings.Join(unknown, ", ")}, warnings...)
	}
	if len(warnings) > 0 {
		w.Header().Set("X-Tandem-Warning", headerText(strings.Join(warnings, "; "), MaxWarning))
	}
}

// dropInner removes headers that only nodes may send one another.
func dropInner(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "X-Tandem-") {
			delete(h, name)
		}
	}
}
