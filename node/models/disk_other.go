//go:build !linux && !darwin

package models

import (
	"math"
	"os"
)

// freeSpace does not know on this system.
func freeSpace(string) (int64, error) { return math.MaxInt64, nil }

// lockFile does nothing on this system: do not run two nodes on one folder.
func lockFile(*os.File) (bool, error) { return true, nil }
