package kvstore

import "tandem/kvstore/block"

// An Event is something that happened to the tiers and that somebody may want to
// count or read. Events come from any goroutine but that of Reserve and Commit.
type Event interface{ isEvent() }

type (
	// BlockDamaged comes when a block did not verify and was deleted.
	BlockDamaged struct {
		Tier  string   `json:"tier"`
		ID    block.ID `json:"id"`
		Error string   `json:"error"`
	}
	// BlocksLost comes when the disk tier dropped blocks with a generation.
	BlocksLost struct {
		Blocks int `json:"blocks"`
	}
	// DiskFailed comes when writing begins to fail; Full says that there is no room.
	// The store goes on without and tries again by itself.
	DiskFailed struct {
		Full  bool   `json:"full"`
		Error string `json:"error"`
	}
	// DiskResumed comes when writing works again.
	DiskResumed struct{}
	// StoreClosed comes at the end of Close: what of the RAM tier is on disk, and what
	// was lost for want of time or room.
	StoreClosed struct {
		SavedBlocks int   `json:"saved_blocks"`
		SavedBytes  int64 `json:"saved_bytes"`
		LostBlocks  int   `json:"lost_blocks"`
		LostBytes   int64 `json:"lost_bytes"`
	}
)

func (BlockDamaged) isEvent() {}
func (BlocksLost) isEvent()   {}
func (DiskFailed) isEvent()   {}
func (DiskResumed) isEvent()  {}
func (StoreClosed) isEvent()  {}
