package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tandem/node/models/gguf"
)

// maxAttempts is how often a download is tried without getting a byte further.
const maxAttempts = 5

// source is a file to download.
type source struct {
	request
	size   int64  // 0: not known
	digest string // hex; "": not known
}

// id names the partial file: equal for everything that may be resumed.
func (s source) id() string {
	if s.digest != "" {
		return s.digest
	}
	sum := sha256.Sum256([]byte(s.url.String()))
	return "url-" + hex.EncodeToString(sum[:])
}

// partState is kept beside a partial file. Without a digest to verify the whole,
// a resumed part must be of the same version.
type partState struct {
	ETag string `json:"etag"`
	Size int64  `json:"size"` // 0: not known
}

// download is a partial file and what is known of the whole.
type download struct {
	store    *Store
	src      source
	f        *os.File
	w        *spaceWriter
	state    partState
	steps    func(Progress)
	answered bool // the server has answered in this run
}

// fetch downloads src, or what is missing of it, verifies it and makes it a blob.
// It returns the blob's digest. A partial file stays if the download fails on the
// way, and goes if what came is wrong.
func (s *Store) fetch(ctx context.Context, src source, steps func(Progress)) (digest string, err error) {
	release, err := s.pulls.claim(ctx, src.id())
	if err != nil {
		return "", err
	}
	defer release()
	if src.digest != "" && s.HasBlob("sha256:"+src.digest) {
		return src.digest, nil
	}
	d, err := s.openPart(ctx, src, steps)
	if err != nil {
		return "", err
	}
	defer d.f.Close()
	if err := d.complete(ctx); err != nil {
		if d.w.n == 0 {
			d.remove()
		}
		return "", d.w.explain(err)
	}
	d.report("verifying sha256 digest")
	digest = hexSum(d.w.sum)
	if src.digest != "" && digest != src.digest {
		d.remove()
		return "", &DigestError{Want: src.digest, Got: digest}
	}
	if _, err := gguf.Read(d.f, d.w.n); err != nil {
		d.remove()
		return "", scrub(err)
	}
	os.Remove(d.statePath())
	return digest, s.keep(d.f, digest)
}

// openPart opens or makes the partial file and reads what is in it.
func (s *Store) openPart(ctx context.Context, src source, steps func(Progress)) (*download, error) {
	path := filepath.Join(s.cfg.Dir, "partial", src.id())
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, scrub(err)
	}
	d := &download{store: s, src: src, f: f, steps: steps, w: &spaceWriter{store: s, f: f, sum: sha256.New()}}
	locked, err := lockFile(f)
	if err == nil && !locked {
		err = errors.New("another process is downloading the same file")
	}
	if err == nil {
		err = d.readPart(ctx)
	}
	if err != nil {
		f.Close()
		return nil, scrub(err)
	}
	return d, nil
}

// readPart hashes what an earlier download has left.
func (d *download) readPart(ctx context.Context) error {
	info, err := d.f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	if text, err := readLimited(d.statePath(), 4<<10); err == nil {
		if json.Unmarshal(text, &d.state) != nil {
			d.state = partState{}
		}
	}
	tooLong := d.src.size > 0 && info.Size() > d.src.size
	if tooLong || d.src.digest == "" && d.state.ETag == "" {
		return d.restart()
	}
	d.report("checking the part that is here")
	n, err := io.CopyBuffer(d.w.sum, &contextReader{ctx, d.f}, make([]byte, copyBuffer))
	d.w.n = n
	return err
}

func (d *download) statePath() string { return d.f.Name() + ".json" }

// restart drops what is here.
func (d *download) restart() error {
	if err := d.f.Truncate(0); err != nil {
		return err
	}
	_, err := d.f.Seek(0, io.SeekStart)
	d.w.n, d.w.checked, d.w.sum, d.state = 0, 0, sha256.New(), partState{}
	return err
}

func (d *download) remove() {
	os.Remove(d.f.Name())
	os.Remove(d.statePath())
}

// size is the size of the whole, as far as it is known.
func (d *download) size() int64 {
	if d.src.size > 0 {
		return d.src.size
	}
	return d.state.Size
}

func (d *download) report(status string) {
	p := Progress{Status: status, Total: d.size(), Completed: d.w.n}
	if d.src.digest != "" {
		p.Digest = "sha256:" + d.src.digest
	}
	d.steps(p)
}

// complete tries until the whole file is here, as long as tries get on or fail
// for a reason that may pass.
func (d *download) complete(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		before := d.w.n
		done, err := d.attempt(ctx)
		if done || !d.answered || !mayPass(err) || ctx.Err() != nil {
			return causeOf(ctx, err)
		}
		if d.w.n > before {
			attempt = 1
		}
		if attempt >= maxAttempts {
			return err
		}
		d.store.log.Info("a download goes on after a fault", "err", err, "bytes", d.w.n)
		if err := d.store.pulls.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// errShort means that a body ended before the file did.
var errShort = errors.New("the connection ended early")

func (d *download) short() error {
	return fmt.Errorf("%s: %w, at byte %d of %d", d.src.url.Host, errShort, d.w.n, d.size())
}

// mayPass says whether the same request may succeed a little later.
func mayPass(err error) bool {
	var unreachable *UnreachableError
	var status *StatusError
	switch {
	case errors.As(err, &status):
		return status.Status >= 500 || status.Status == http.StatusTooManyRequests
	case errors.As(err, &unreachable), errors.Is(err, errShort), errors.Is(err, errStalled):
		return true
	}
	return false
}

// attempt requests what is missing and writes it.
func (d *download) attempt(ctx context.Context) (done bool, err error) {
	if size := d.size(); size > 0 && d.w.n == size {
		return true, nil
	}
	r := d.src.request
	r.header = http.Header{}
	if d.w.n > 0 {
		r.header.Set("Range", fmt.Sprintf("bytes=%d-", d.w.n))
		if d.state.ETag != "" {
			r.header.Set("If-Range", d.state.ETag)
		}
	}
	resp, err := d.store.web.get(ctx, r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	d.answered = true
	if err := d.accept(resp); err != nil {
		return false, err
	}
	if size := d.size(); size > 0 {
		if err := d.store.room(size - d.w.n); err != nil {
			return false, err
		}
	}
	return d.receive(resp.Body)
}

// accept checks the head of an answer and makes the file ready for its body.
func (d *download) accept(resp *http.Response) error {
	host := d.src.url.Host
	total := resp.ContentLength // -1: not known
	switch resp.StatusCode {
	case http.StatusOK:
		if err := d.restart(); err != nil {
			return err
		}
	case http.StatusPartialContent:
		start, whole, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || start != d.w.n {
			return fmt.Errorf("%s sends another part than was asked for", host)
		}
		total = whole
	case http.StatusRequestedRangeNotSatisfiable:
		if err := d.restart(); err != nil {
			return err
		}
		return d.short()
	default:
		return statusError(d.src.url, resp.StatusCode)
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return fmt.Errorf("%s sends the file encoded as %s", host, quote(e))
	}
	if total > maxBlob {
		return fmt.Errorf("%s offers %s, allowed are %s", host, bytesText(total), bytesText(maxBlob))
	}
	if size := d.size(); size > 0 && total >= 0 && total != size {
		return fmt.Errorf("%s offers %d bytes, announced were %d", host, total, size)
	}
	return d.remember(resp.Header.Get("ETag"), total)
}

// remember notes which version of the file the part belongs to.
func (d *download) remember(etag string, total int64) error {
	if strings.HasPrefix(etag, "W/") || len(etag) > 256 {
		etag = ""
	}
	next := partState{ETag: etag, Size: max(total, 0)}
	if next == d.state {
		return nil
	}
	d.state = next
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	return scrub(os.WriteFile(d.statePath(), text, 0o600))
}

// contentRange parses "bytes 5-9/10"; whole is -1 if the server does not know.
func contentRange(s string) (start, whole int64, ok bool) {
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, total, ok2 := strings.Cut(rest, "/")
	first, _, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, false
	}
	start, err := strconv.ParseInt(first, 10, 64)
	if err != nil || start < 0 {
		return 0, 0, false
	}
	if total == "*" {
		return start, -1, true
	}
	whole, err = strconv.ParseInt(total, 10, 64)
	return start, whole, err == nil && whole > start
}

// receive writes a body. It is done if the file is complete.
func (d *download) receive(body io.Reader) (done bool, err error) {
	buf := make([]byte, copyBuffer)
	status := "pulling " + d.label()
	for {
		n, readErr := body.Read(buf)
		if size := d.size(); size > 0 && d.w.n+int64(n) > size {
			return false, fmt.Errorf("%s sends more than the %d bytes that were announced", d.src.url.Host, size)
		}
		if d.w.n == 0 && n > 0 {
			n, readErr = d.first(buf, n, body, readErr)
			if err := gguf.Sniff(buf[:n]); err != nil {
				return false, err
			}
		}
		if n > 0 {
			if _, err := d.w.Write(buf[:n]); err != nil {
				return false, err
			}
			d.report(status)
		}
		switch {
		case d.size() > 0 && d.w.n == d.size(), readErr == io.EOF && d.size() == 0:
			return true, nil
		case readErr == io.EOF || readErr == io.ErrUnexpectedEOF:
			return false, d.short()
		case readErr != nil:
			return false, &UnreachableError{Host: d.src.url.Host, Err: scrub(readErr)}
		}
	}
}

// first makes sure that the first piece is long enough to tell a GGUF.
func (d *download) first(buf []byte, n int, body io.Reader, readErr error) (int, error) {
	const enough = 24
	for n < enough && readErr == nil {
		var more int
		more, readErr = body.Read(buf[n:])
		n += more
	}
	return n, readErr
}

// label is how the file is called in progress.
func (d *download) label() string {
	if d.src.digest != "" {
		return d.src.digest[:12]
	}
	return filepath.Base(d.src.url.Path)
}

// backoff is the pause before the next attempt.
func backoff(attempt int) time.Duration { return time.Second << min(attempt-1, 4) }
