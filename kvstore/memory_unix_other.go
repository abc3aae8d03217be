//go:build unix && !linux && !race

package kvstore

import "errors"

func adviseHuge([]byte) {}

// populate is not there: the first use of a page faults it in.
func populate([]byte) error { return errors.ErrUnsupported }
