//go:build linux || darwin

package models

import (
	"errors"
	"os"
	"syscall"
)

// freeSpace is the number of bytes that this user may still write in dir.
func freeSpace(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// lockFile takes an exclusive lock that ends with the file or the process. It
// does not wait: false means that somebody else has it.
func lockFile(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
