package kvstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// diskFree is how much may still be written in dir, and the size of its file
// system.
func diskFree(dir string) (free, size int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

// allocateDisk gives [from, from+n) of a file real room, without changing its
// length. Badger writes its log of keys through a mapping: a page that finds no room
// there ends the process, so room is made first. In a data file it keeps the budget
// ahead of what is written. File systems that cannot do that keep the spare room only.
// The error matches ENOSPC if there is none.
func allocateDisk(f *os.File, from, n int64) error {
	err := retryInterrupted(func() error { return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func retryInterrupted(fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
