package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// readBody reads a JSON body within MaxBody and the time that BodyGrace and
// BodyRate allow.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > MaxBody {
		return nil, errTooLarge(MaxBody)
	}
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	body := s.pace(w, http.MaxBytesReader(w, r.Body, MaxBody))
	defer body.done()
	data, err := io.ReadAll(body)
	return data, bodyError(r.Context(), err)
}

// checkEncoding refuses packed bodies: what they unpack to is not bounded by what
// was sent.
func checkEncoding(r *http.Request) error {
	encoding := strings.ToLower(r.Header.Get("Content-Encoding"))
	if encoding == "" || encoding == "identity" {
		return nil
	}
	return &Error{Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error", Code: "unsupported_encoding",
		Message: "a body with Content-Encoding is not accepted; send it as it is"}
}

// bodyError tells a body that was too long or too slow from one that broke off.
func bodyError(ctx context.Context, err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil, errors.As(err, &tooLarge), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errBodyLost
}

// pacedReader moves the connection's read deadline on as bytes arrive.
type pacedReader struct {
	io.Reader
	rc    *http.ResponseController
	start time.Time
	grace time.Duration
	bytes int64
	whole bool
}

func (s *Server) pace(w http.ResponseWriter, r io.Reader) *pacedReader {
	return &pacedReader{Reader: r, rc: http.NewResponseController(w), start: time.Now(), grace: s.bodyGrace}
}

func (p *pacedReader) Read(b []byte) (int, error) {
	earned := time.Duration(p.bytes) * time.Second / BodyRate
	_ = p.rc.SetReadDeadline(p.start.Add(p.grace + earned))
	n, err := p.Reader.Read(b)
	p.bytes += int64(n)
	p.whole = p.whole || err == io.EOF
	return n, err
}

// done must be called after the last read. After a whole body the deadline is
// lifted: net/http now reads ahead to notice a client that leaves, and a deadline
// would look like one. After a part it is set to the past: net/http would otherwise
// wait for the rest, without any deadline, before it sends the answer.
func (p *pacedReader) done() {
	deadline := time.Unix(1, 0)
	if p.whole {
		deadline = time.Time{}
	}
	_ = p.rc.SetReadDeadline(deadline)
}

// boundBody sets the deadline for a body that no handler may come to read, as when
// a key is missing: net/http waits for that, too.
func (s *Server) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyGrace))
	}
}
