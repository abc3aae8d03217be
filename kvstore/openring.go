package kvstore

import (
	"path/filepath"

	"tandem/kvstore/block"
)

// ringFolder is the folder of the disk tier in the store's own.
const ringFolder = "disk"

// openRing opens the disk tier in the store's directory.
func openRing(s *Store) (Disk, error) {
	ring, err := OpenRing(filepath.Join(s.opts.Dir, ringFolder), RingOptions{
		Bytes: s.opts.DiskBytes, Lost: s.lost, Log: s.opts.Log, Now: s.opts.Now,
	})
	if err != nil {
		return nil, err // not a nil *Ring in an interface
	}
	s.largest = ring.geo.record() - block.HeaderBytesMax
	return ring, nil
}
