//go:build unix

package kvstore

import (
	"errors"
	"io/fs"
	"syscall"
)

// diskBytes is what a file takes on the file system. Sparse files, which Badger
// makes, take less than their length.
func diskBytes(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(s.Blocks) * 512
	}
	return info.Size()
}

var errNoSpace error = syscall.ENOSPC

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
