//go:build !race

package kvstore

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages, which make faults and TLB misses rarer. Kernels
// without them do without.
func adviseHuge(region []byte) { _ = unix.Madvise(region, unix.MADV_HUGEPAGE) }

// populate faults memory in and leaves its contents alone, so that it may be in use
// meanwhile. Kernels before 5.14 refuse.
func populate(b []byte) error { return unix.Madvise(b, unix.MADV_POPULATE_WRITE) }
