//go:build !linux

package node

import (
	"errors"
	"os"
	"syscall"
)

// lockHolder is not known here.
func lockHolder(*os.File) int { return 0 }

// freeSpace is not known here.
func freeSpace(string) (int64, bool) { return 0, false }

// dontFragment has no way here that works for both IPv4 and IPv6.
func dontFragment(syscall.RawConn) error { return errors.ErrUnsupported }
