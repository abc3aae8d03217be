//go:build !unix

package kvstore

import "os"

// lockFile does nothing on this system: do not run two nodes on one folder.
func lockFile(*os.File) (bool, error) { return true, nil }

// unlockFile closes the file.
func unlockFile(f *os.File) error { return f.Close() }
