//go:build !unix || race

package kvstore

import (
	"errors"
	"unsafe"
)

// mapMemory takes the memory from the Go heap, which gives large pieces zeroed and
// page by page as they are used. Under the race detector it does so everywhere: the
// detector sees only accesses to memory that it knows.
func mapMemory(bytes int) ([]byte, func() error, error) {
	raw := make([]byte, bytes+arenaAlign)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (arenaAlign - 1)
	return raw[skip : skip+bytes : skip+bytes], func() error { return nil }, nil
}

// mapped tells whether memory is outside the Go heap, so that others may keep pointers
// to it.
const mapped = false

// populate is not there: the first use of a page faults it in.
func populate([]byte) error { return errors.ErrUnsupported }
