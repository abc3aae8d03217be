//go:build unix && !race

package kvstore

import "golang.org/x/sys/unix"

// mapped tells whether memory is outside the Go heap, so that others may keep pointers
// to it.
const mapped = true

// mapMemory reserves zeroed memory that takes room only when it is used.
func mapMemory(bytes int) ([]byte, func() error, error) {
	page := unix.Getpagesize()
	pages := (bytes + page - 1) / page * page
	region, err := unix.Mmap(-1, 0, pages, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	adviseHuge(region)
	return region[:bytes:bytes], func() error { return unix.Munmap(region) }, nil
}
