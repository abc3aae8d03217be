//go:build !unix

package kvstore

import (
	"errors"
	"io/fs"
)

// diskBytes takes the length for what a file takes: too much where files are sparse,
// so the budget is kept, but not used up.
func diskBytes(info fs.FileInfo) int64 { return info.Size() }

var errNoSpace = errors.New("no space left on the device")

func isNoSpace(err error) bool { return errors.Is(err, errNoSpace) }
