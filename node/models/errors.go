package models

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"syscall"
)

// ErrNotFound means that there is no model of that name, here or, for Pull, at
// the other end.
var ErrNotFound = errors.New("model not found")

// ErrBadName is what every *RefError is.
var ErrBadName = errors.New("not a model name")

// RefError refuses a name, ref, digest or file name before anything was done
// with it.
type RefError struct {
	Field   string // what was named: model, ref, digest, file
	Value   string
	Allowed string
}

func (e *RefError) Error() string {
	return fmt.Sprintf("%s %s is not allowed: %s", e.Field, quote(e.Value), e.Allowed)
}

// Is makes every RefError match ErrBadName.
func (e *RefError) Is(target error) bool { return target == ErrBadName }

// BrokenError says that a model is there but cannot be used. Err is a
// *gguf.FormatError if its file was refused.
type BrokenError struct {
	Name string
	Err  error
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("model %s cannot be used: %v", e.Name, e.Err)
}

func (e *BrokenError) Unwrap() error { return e.Err }

// ReadOnlyError refuses to change a model that is not the store's own.
type ReadOnlyError struct {
	Name   string
	Reason string
}

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("model %s cannot be changed here: %s", e.Name, e.Reason)
}

// DigestError means that bytes were not those that were announced.
type DigestError struct{ Want, Got string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("the data has the digest sha256:%s, announced was sha256:%s", e.Got, e.Want)
}

// SpaceError means that the disk has no room. Need includes the reserve that is
// kept free; 0 means that the disk ran full before the size was known.
type SpaceError struct{ Need, Free int64 }

func (e *SpaceError) Error() string {
	if e.Need == 0 {
		return fmt.Sprintf("the disk is full (%s free); make room and run the same again, it goes on where it stopped", bytesText(e.Free))
	}
	return fmt.Sprintf("not enough room on the disk: %s are needed, %s are free", bytesText(e.Need), bytesText(e.Free))
}

// UnreachableError means that a server did not answer.
type UnreachableError struct {
	Host string
	Err  error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach %s: %v; an air-gapped box can use a file: tandem pull ./model.gguf", e.Host, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// StatusError is an answer of a server that is not the one hoped for.
type StatusError struct {
	Host   string
	Status int
	Hint   string // what to do about it; may be empty
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answered with status %d", e.Host, e.Status)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Is makes 404 and 410 match ErrNotFound.
func (e *StatusError) Is(target error) bool {
	return target == ErrNotFound && (e.Status == 404 || e.Status == 410)
}

// quote shows text from outside in a message: shortened, in ASCII.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%+q…", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}

// scrub removes paths and addresses that the errors of package os and net/http
// carry, and names a full disk.
func scrub(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	var address *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return &SpaceError{}
	case errors.As(err, &path):
		return fmt.Errorf("%s: %w", path.Op, path.Err)
	case errors.As(err, &link):
		return fmt.Errorf("%s: %w", link.Op, link.Err)
	case errors.As(err, &address):
		return address.Err
	}
	return err
}

// causeOf is the reason why ctx ended, if it did, else err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return err
}

// bytesText prints a size in the unit that a person would choose.
func bytesText(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, i := float64(n)/unit, 0
	for value >= unit && i < 4 {
		value /= unit
		i++
	}
	return fmt.Sprintf("%.1f %cB", value, "kMGTP"[i])
}
