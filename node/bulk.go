package node

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"tandem/cluster/member"
	"tandem/xfer"
)

// serviceProbe sends as many bytes as it is asked for, so that the way can be
// measured.
const serviceProbe = "kv/probe"

// Measuring ways.
const (
	probeBytes    = 8 << 20 // 70 ms at 1 Gbit/s
	probeBytesMax = 64 << 20
	probeTime     = 5 * time.Second
	probeEvery    = 10 * time.Minute // unless blocks were moved meanwhile
	rttEvery      = 30 * time.Second
	measuredMin   = 4 << 20 // fewer bytes say little of a way
	failedTerm    = time.Minute
	// slowShare of the best that was measured is an alarm: a cable, a port or a
	// driver has gone wrong.
	slowShare = 0.5
	// quicShare: QUIC costs several times the processor time of TLS over TCP for each
	// byte, so it must be faster by that to be taken.
	quicShare = 1.1
)

// bulkWays are the measured ways on which KV blocks come from other nodes.
type bulkWays struct {
	warn func(peer member.ID, goodput, best float64)

	mu   sync.Mutex
	ways map[member.ID]map[xfer.Transport]*bulkWay
}

// bulkWay is one transport from one node.
type bulkWay struct {
	goodput  float64 // bytes/s, smoothed; 0: not measured
	best     float64 // that was ever measured
	measured time.Time
	problem  string // why it cannot be used
	until    time.Time
	alarmed  bool
	open     bool // memory: it is there
}

func newBulkWays(warn func(member.ID, float64, float64)) *bulkWays {
	return &bulkWays{warn: warn, ways: map[member.ID]map[xfer.Transport]*bulkWay{}}
}

func (b *bulkWays) getLocked(peer member.ID, t xfer.Transport) *bulkWay {
	if b.ways[peer] == nil {
		b.ways[peer] = map[xfer.Transport]*bulkWay{}
	}
	w := b.ways[peer][t]
	if w == nil {
		w = &bulkWay{}
		b.ways[peer][t] = w
	}
	return w
}

// way is the transport to take: the fastest one that is there and has not failed
// lately. TCP where nothing is known.
func (b *bulkWays) way(peer member.ID) xfer.Transport {
	return b.fastest(peer, xfer.TCP, xfer.QUIC, xfer.Shared, xfer.RDMA)
}

// network is the connection to take.
func (b *bulkWays) network(peer member.ID) xfer.Transport {
	return b.fastest(peer, xfer.TCP, xfer.QUIC)
}

// fastest is the best of some transports; of those that are equal, the first.
func (b *bulkWays) fastest(peer member.ID, all ...xfer.Transport) xfer.Transport {
	b.mu.Lock()
	defer b.mu.Unlock()
	best, rate := all[0], 0.0
	for i, t := range all {
		if r := b.rateLocked(peer, t); i == 0 || r > rate {
			best, rate = t, r
		}
	}
	return best
}

// rateLocked is what a transport is worth, in bytes/s; below 0: it cannot be used.
func (b *bulkWays) rateLocked(peer member.ID, t xfer.Transport) float64 {
	w := b.getLocked(peer, t)
	memory := t == xfer.Shared || t == xfer.RDMA
	switch {
	case time.Now().Before(w.until) || memory && !w.open:
		return -1
	case t == xfer.QUIC:
		return w.goodput / quicShare
	}
	return w.goodput
}

// opened notes that a way through memory is there, and how fast it is.
func (b *bulkWays) opened(peer member.ID, t xfer.Transport, goodput float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.getLocked(peer, t) = bulkWay{open: true, goodput: goodput, best: goodput, measured: time.Now()}
}

// closed notes that it is not there any more.
func (b *bulkWays) closed(peer member.ID, t xfer.Transport, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.getLocked(peer, t) = bulkWay{problem: why}
}

// moved learns from bytes that came.
func (b *bulkWays) moved(peer member.ID, t xfer.Transport, bytes int64, took time.Duration) {
	if bytes < measuredMin || took <= 0 {
		return
	}
	rate := float64(bytes) / took.Seconds()
	b.mu.Lock()
	w := b.getLocked(peer, t)
	if w.goodput == 0 {
		w.goodput = rate
	}
	w.goodput += (rate - w.goodput) / 2
	w.measured, w.problem, w.until = time.Now(), "", time.Time{}
	w.best = max(w.best, w.goodput)
	slow := w.goodput < w.best*slowShare && t != xfer.Shared // memory is slow only while the machine is busy
	alarm := slow && !w.alarmed
	w.alarmed = slow
	goodput, best := w.goodput, w.best
	b.mu.Unlock()
	if alarm {
		b.warn(peer, goodput, best)
	}
}

// failed notes that a way cannot be used for a while.
func (b *bulkWays) failed(peer member.ID, t xfer.Transport, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.getLocked(peer, t)
	w.problem, w.until = err.Error(), time.Now().Add(failedTerm)
}

// goodput is that of the way that would be taken, in bytes/s, and its age; 0: not
// measured.
func (b *bulkWays) goodput(peer member.ID) (rate float64, age time.Duration) {
	way := b.way(peer)
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.getLocked(peer, way)
	return w.goodput, time.Since(w.measured)
}

// networkGoodput is that of the connections.
func (b *bulkWays) networkGoodput(peer member.ID) (rate float64, age time.Duration) {
	way := b.network(peer)
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.getLocked(peer, way)
	return w.goodput, time.Since(w.measured)
}

// forget drops what is known of a node that is gone.
func (b *bulkWays) forget(peer member.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ways, peer)
}

// BulkWay is one way on which blocks come from a node, for people.
type BulkWay struct {
	Transport string  `json:"transport"`
	Goodput   float64 `json:"goodput"` // bytes/s; 0: not measured
	Used      bool    `json:"used,omitempty"`
	Slow      bool    `json:"slow,omitempty"` // less than half of what it was
	Problem   string  `json:"problem,omitempty"`
}

// list tells of all ways of a node.
func (b *bulkWays) list(peer member.ID) []BulkWay {
	used := b.way(peer)
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []BulkWay
	for _, t := range slices.Sorted(maps.Keys(b.ways[peer])) {
		w := b.ways[peer][t]
		if w.goodput > 0 || w.problem != "" {
			out = append(out, BulkWay{Transport: string(t), Goodput: w.goodput, Used: t == used, Slow: w.alarmed, Problem: w.problem})
		}
	}
	return out
}

// measure keeps the figures of the way to a node fresh until ctx ends. A node is
// measured when it is first there: no request should pay for a new connection.
func (p *peers) measure(ctx context.Context, id member.ID) {
	if id == member.ID(p.node.id) {
		return
	}
	var probed time.Time
	pause := time.Second
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		rtt, err := p.link.Probe(ctx, id)
		if err != nil {
			pause = min(2*pause, rttEvery)
			continue
		}
		pause = rttEvery
		p.mu.Lock()
		if v := p.mu.views[id]; v != nil {
			v.rtt, v.probed = rtt, time.Now()
		}
		p.mu.Unlock()
		if p.node.keeper == nil {
			continue
		}
		p.memory.open(ctx, id)
		if time.Since(probed) < probeEvery {
			continue
		}
		if _, age := p.bulk.networkGoodput(id); probed.IsZero() || age > probeEvery {
			for _, t := range []xfer.Transport{xfer.TCP, xfer.QUIC} {
				if err := p.probe(ctx, id, t); err != nil {
					p.bulk.failed(id, t, err)
				}
			}
		}
		probed = time.Now()
	}
}

// probe moves some bytes over one way.
func (p *peers) probe(ctx context.Context, id member.ID, t xfer.Transport) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	lanes := xfer.BulkLanes(t)
	var all sync.WaitGroup
	errs := make([]error, lanes)
	streams := make([]*xfer.Stream, lanes)
	for lane := range lanes {
		all.Go(func() { streams[lane], errs[lane] = p.link.OpenBulk(ctx, id, serviceProbe, t, lane) })
	}
	all.Wait()
	defer func() {
		for _, s := range streams {
			if s != nil {
				s.Close()
			}
		}
	}()
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	start := time.Now() // connections are not counted: they stay
	for lane, s := range streams {
		all.Go(func() { errs[lane] = probeLane(s, probeBytes/int64(lanes)) })
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	p.bulk.moved(id, t, probeBytes, time.Since(start))
	return nil
}

func probeLane(s *xfer.Stream, bytes int64) error {
	if err := xfer.WriteMessage(s, binary.BigEndian.AppendUint32(nil, uint32(bytes))); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, s)
	if err == nil && n != bytes {
		err = fmt.Errorf("%d bytes came where %d were asked for", n, bytes)
	}
	return err
}

// serveProbe sends bytes that nobody needs.
func (p *peers) serveProbe(ctx context.Context, s *xfer.Stream) error {
	data, err := xfer.ReadMessage(s, 4)
	if err != nil || len(data) != 4 {
		return fmt.Errorf("a probe of %d bytes: %w", len(data), cmp.Or(err, io.ErrUnexpectedEOF))
	}
	left := int(binary.BigEndian.Uint32(data))
	if left > probeBytesMax {
		return fmt.Errorf("a probe asks for %d bytes; at most %d", left, probeBytesMax)
	}
	s.SetWriteDeadline(time.Now().Add(probeTime))
	piece := make([]byte, 256<<10)
	for left > 0 {
		n, err := s.Write(piece[:min(left, len(piece))])
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}
