package kvstore

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tandem/kvstore/block"
)

// Options say how a Store is made.
type Options struct {
	// Dir is where the disk tier, the pins and the lock lie; it is made if it is not
	// there. "": nothing is kept, DiskBytes must be 0 or Disk given.
	Dir string
	// RAMBytes is the size of the RAM tier, above 0.
	RAMBytes int64
	// DiskBytes is the most that the disk tier takes on the file system; 0: no disk
	// tier, unless Disk is given.
	DiskBytes int64
	// Admission is how often a block must have been used before it is written to
	// disk: 1, which is what 0 means, at once; 2 when somebody asks for it again. More
	// spares the SSD and loses more when the power fails. Close saves regardless.
	Admission int
	// Queue is how many bytes of blocks may wait to be written to disk; 0: 64 MiB. If
	// the disk does not keep up, blocks stay in RAM only, and are counted.
	Queue int
	// Busy tells that the process computes: memory is made ready at other times. It is
	// called from any goroutine and must not block; nil is never.
	Busy func() bool
	// Shapes tells what blocks of a fingerprint look like, for all that are in use;
	// false: it is not known, and its blocks cannot be read from disk or imported.
	// It is called from any goroutine and must not block. nil knows none.
	Shapes func(block.Fingerprint) (block.Shape, bool)
	// Key, unless it is zero, verifies that the tokens of blocks from disk or import
	// are those that their ids stand for.
	Key block.Key
	// Log takes what an operator should read. nil: nothing is logged.
	Log *slog.Logger
	// Events is told what happens to the tiers. It must not block or call the store.
	Events func(Event)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Disk is the disk tier, which the Store closes; nil opens the ring in Dir.
	Disk Disk
}

// validate names every fault.
func (o Options) validate() error {
	var faults []error
	if o.RAMBytes < arenaAlign {
		faults = append(faults, fmt.Errorf("option RAMBytes is %d; it must be at least %d", o.RAMBytes, arenaAlign))
	}
	if o.DiskBytes < 0 {
		faults = append(faults, fmt.Errorf("option DiskBytes is %d; it must not be negative", o.DiskBytes))
	}
	if o.DiskBytes > 0 && o.Dir == "" && o.Disk == nil {
		faults = append(faults, fmt.Errorf("option DiskBytes is %d, but Dir is empty", o.DiskBytes))
	}
	if o.Admission < 0 {
		faults = append(faults, fmt.Errorf("option Admission is %d; it must not be negative", o.Admission))
	}
	if o.Queue < 0 {
		faults = append(faults, fmt.Errorf("option Queue is %d; it must not be negative", o.Queue))
	}
	return errors.Join(faults...)
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	o.Admission = max(o.Admission, 1)
	if o.Queue == 0 {
		o.Queue = queueDefault
	}
	if o.Shapes == nil {
		o.Shapes = func(block.Fingerprint) (block.Shape, bool) { return block.Shape{}, false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
