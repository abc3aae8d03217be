package xfer

import (
	"context"
	"fmt"
	"time"
)

// keep pings the peer and ends the connection when it is silent. Pings are longer
// than a packet: where a path has begun to drop large packets they are lost, too,
// and the connection makes place for a new one that finds out the size again.
func (c *conn) keep() {
	tick := c.keepAlive / 4
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	c.ping(pingBytes, nil)
	last := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
		now := time.Now()
		if now.Sub(last) > max(c.deadAfter/2, 2*tick) {
			c.forgive(now) // this process did not run; the peer is not to blame
		}
		last = now
		if silent := c.silence(now); silent > c.deadAfter {
			c.fail(c.lostBecause(fmt.Sprintf("it was silent for %v", silent.Round(time.Millisecond)), nil), nil)
			return
		}
		c.mu.Lock()
		due := now.Sub(c.lastPing) >= c.keepAlive
		c.mu.Unlock()
		if due {
			c.ping(pingBytes, nil)
		}
	}
}

// silence is for how long the peer has owed a sign of life. With QUIC pings pass
// data, and small packets prove nothing about large ones: for control only answers
// count. Else everything that comes counts, and answers have patience times as long:
// TCP delivers in order and may have much in its buffers; and on a QUIC connection for
// data, streams that nobody reads here may use up its window, which answers need, too.
func (c *conn) silence(now time.Time) time.Duration {
	const patience = 4
	var heard time.Time
	if c.kind != QUIC || c.lane != controlLane {
		heard = c.sess.heard()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	owed := now
	for _, p := range c.pings {
		if p.sent.Before(owed) {
			owed = p.sent
		}
	}
	if owed.Before(c.floor) {
		owed = c.floor
	}
	if heard.IsZero() {
		return now.Sub(owed)
	}
	if heard.Before(c.floor) {
		heard = c.floor
	}
	return max(now.Sub(heard), now.Sub(owed)/patience)
}

func (c *conn) forgive(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = now
}

// suspect tells whether new streams should avoid the connection.
func (c *conn) suspect(now time.Time) bool {
	return c.silence(now) > max(min(c.link.cfg.Timings.Suspect, c.deadAfter/2), c.keepAlive*3/2)
}

// ping sends a ping; its answer goes to answered, if that is not nil.
func (c *conn) ping(size int, answered chan time.Duration) (nonce uint64) {
	c.mu.Lock()
	c.nonce++
	nonce = c.nonce
	c.lastPing = time.Now()
	c.pings[nonce] = &ping{sent: c.lastPing, answered: answered}
	c.mu.Unlock()
	c.enqueue(func() error {
		f := frame{Type: framePing, Nonce: nonce}
		f.Pad = max(0, size-frameHeadBytes-8)
		return c.write(f)
	})
	return nonce
}

func (c *conn) onPong(nonce uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pings[nonce]
	if p == nil {
		return
	}
	delete(c.pings, nonce)
	rtt := time.Since(p.sent)
	if c.rtt == 0 {
		c.rtt = rtt
	}
	c.rtt += (rtt - c.rtt) / 8
	if p.answered != nil {
		p.answered <- rtt
	}
}

// probe measures one round trip.
func (c *conn) probe(ctx context.Context) (time.Duration, error) {
	answered := make(chan time.Duration, 1)
	c.ping(0, answered)
	select {
	case rtt := <-answered:
		return rtt, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("probe node %s: %w", c.peer.Short(), context.Cause(ctx))
	case <-c.ctx.Done():
		return 0, context.Cause(c.ctx)
	}
}
