//go:build !fabric || !linux || !cgo

package fabric

import (
	"errors"
	"testing"
)

func TestStub(t *testing.T) {
	if e, err := Open(Options{Region: make([]byte, 1)}); e != nil || !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Open: %v, %v", e, err)
	}
	if infos, err := Providers(); infos != nil || !errors.Is(err, ErrNotBuilt) {
		t.Errorf("Providers: %v, %v", infos, err)
	}
}
