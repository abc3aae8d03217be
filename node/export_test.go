package node

import "context"

// StopAgreeing ends this node's part in the agreement, as if it were frozen for that
// alone: it keeps its vote, and serves on.
func (n *Node) StopAgreeing(ctx context.Context) error { return n.peers.quorum.Close(ctx) }
