package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// leaveWithin bounds a goodbye whose context has no end.
const leaveWithin = 5 * time.Second

// Leave says goodbye, so that others see at once that this node is gone and has not
// failed. They are told over TCP each, and by gossip. It waits for that until the
// context ends. Close comes after it.
func (c *Cluster) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	c.mu.Lock()
	first := !c.leaving && c.ctx.Err() == nil
	c.leaving = true
	c.mu.Unlock()
	if !first {
		return nil
	}
	if err := c.update(c.cfg.Pace); err != nil {
		c.log.Debug("gossip: the goodbye goes out later", "error", err)
	}
	told := make(chan struct{})
	c.wg.Go(func() {
		defer close(told)
		c.sayGoodbye()
	})
	select {
	case <-told:
	case <-ctx.Done():
	}
	within := time.Millisecond
	if deadline, ok := ctx.Deadline(); ok {
		within = max(within, time.Until(deadline))
	}
	if err := c.list.Leave(within); err != nil {
		return fmt.Errorf("cluster: leave: %w", err)
	}
	return nil
}

// sayGoodbye tells every node that is there; the ones that cannot be reached do not hold
// up the others.
func (c *Cluster) sayGoodbye() {
	var wg sync.WaitGroup
	message := encodeGoodbye(c.cfg.Self.ID, c.process)
	for _, e := range c.table.present() {
		wg.Go(func() {
			to := &memberlist.Node{Name: string(e.m.ID), Addr: e.gossip.Addr().AsSlice(), Port: e.gossip.Port()}
			if err := c.list.SendReliable(to, message); err != nil {
				c.log.Debug("gossip: a node was not told goodbye", "node", e.m.Name, "error", err)
			}
		})
	}
	wg.Wait()
}

// Close ends everything and waits for it. Without Leave before, others see a failure.
func (c *Cluster) Close() error {
	c.cancel()
	if c.mdns != nil {
		c.mdns.close()
	}
	err := c.list.Shutdown() // closes the transport and waits for it
	c.wg.Wait()
	if saveErr := c.memory.save(); saveErr != nil && err == nil {
		err = saveErr
	}
	return err
}
