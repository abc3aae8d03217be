package quorum

// Limits on everything that comes from outside or from disk. Those of the state
// machine are part of command version 1: nodes that disagreed about them would come
// to different states.
const (
	// VotersMax is how many nodes vote. More make every change slower and none safer:
	// five bear the loss of two.
	VotersMax = 5

	settingsMax    = 64
	assignmentsMax = 512
	pinsMax        = 1024
	revocationsMax = 4096
	nodesMax       = 256
	recentMax      = 256 // more than changes that can be under way at once

	nameBytesMax   = 256 // of a setting, model, pin or revocation
	valueBytesMax  = 1024
	reasonBytesMax = 1024
	idBytesMax     = 64

	// commandBytesMax holds a role plan or an assignment of 256 nodes.
	commandBytesMax = 32 << 10
	// entryBytesMax is for one log entry; the largest is a configuration.
	entryBytesMax = 128 << 10
	// snapshotBytesMax holds the largest state that the counts above allow.
	snapshotBytesMax = 16 << 20

	helloBytesMax   = 4 << 10
	forwardBytesMax = commandBytesMax + 8<<10

	// hellosMax bounds streams that were opened and have not said who they are.
	hellosMax = 64
	// streamsMax bounds raft's streams from others: a few per peer.
	streamsMax = 8 * nodesMax
	// changesMax bounds changes that this node waits for.
	changesMax = 64
)
