package scheduler

// linksDense is up to how many nodes all pairs have a place of their own: beyond, few
// of them are known.
const linksDense = 64

// links are the measured ways between nodes, by their places in State.Nodes; 0 is
// not known.
type links struct {
	s            *State
	nodes, entry int
	rttMs        []float64 // from the entry node
	pairs        []pair    // of two nodes, nodes*a+b; only if KV can move
	sparse       map[int]pair
	mid          pair // medians, for what is not known
	midIs        bool
	goodputHigh  float64
	rttLow       float64
}

// pair is goodput, in bytes/s, and RTT, in ms, between two nodes.
type pair struct{ goodput, rttMs float64 }

func newLinks(s *State, places places) links {
	n := len(s.Nodes)
	l := links{s: s, nodes: n, entry: -1, rttMs: make([]float64, n)}
	if at, ok := places.of(s.Entry); ok {
		l.entry = at
	}
	switch {
	case s.Transfers && n <= linksDense:
		l.pairs = make([]pair, n*n)
	case s.Transfers:
		l.sparse = make(map[int]pair, 2*len(s.Links))
	}
	for i := range s.Links {
		link := &s.Links[i]
		a, okA := places.of(link.A)
		b, okB := places.of(link.B)
		if okA && okB {
			known := l.known(link)
			l.set(a, b, known)
			l.set(b, a, known)
		}
	}
	return l
}

// known is what of a link is fresh.
func (l *links) known(link *Link) (p pair) {
	if link.Goodput.fresh(l.s.Tuning.LinkStale) {
		p.goodput = link.Goodput.Value
	}
	if link.RTTMs.fresh(l.s.Tuning.LinkStale) {
		p.rttMs = link.RTTMs.Value
	}
	return p
}

func (l *links) set(a, b int, p pair) {
	if a == l.entry && p.rttMs > 0 {
		l.rttMs[b] = p.rttMs
	}
	at := a*l.nodes + b
	switch {
	case l.pairs != nil:
		l.pairs[at] = l.pairs[at].with(p)
	case l.sparse != nil:
		l.sparse[at] = l.sparse[at].with(p)
	}
}

// with takes over what another one knows.
func (p pair) with(other pair) pair {
	if other.goodput > 0 {
		p.goodput = other.goodput
	}
	if other.rttMs > 0 {
		p.rttMs = other.rttMs
	}
	return p
}

// middle gives the medians of what is known, and with them the bounds of all.
func (l *links) middle() pair {
	if l.midIs {
		return l.mid
	}
	l.midIs = true
	goodputs, rtts := make([]float64, 0, len(l.s.Links)), make([]float64, 0, len(l.s.Links))
	for i := range l.s.Links {
		known := l.known(&l.s.Links[i])
		if known.goodput > 0 {
			goodputs = append(goodputs, known.goodput)
		}
		if known.rttMs > 0 {
			rtts = append(rtts, known.rttMs)
		}
	}
	l.mid = pair{middle(goodputs, goodputDefault, true), middle(rtts, rttMsDefault, false)}
	l.goodputHigh, l.rttLow = l.mid.goodput, l.mid.rttMs
	if len(goodputs) > 0 {
		l.goodputHigh = goodputs[len(goodputs)-1]
	}
	if len(rtts) > 0 {
		l.rttLow = rtts[0]
	}
	return l.mid
}

// goodputMax is that of no two nodes exceeded, in bytes/s.
func (l *links) goodputMax() float64 {
	l.middle()
	return l.goodputHigh
}

// rttMin is the shortest RTT between any two nodes, in ms.
func (l *links) rttMin() float64 {
	l.middle()
	return l.rttLow
}

// fromEntry is the RTT, in ms, from the entry node.
func (l *links) fromEntry(to int) float64 {
	if l.rttMs[to] > 0 {
		return l.rttMs[to]
	}
	return l.middle().rttMs
}

// between is goodput, in bytes/s, and RTT, in ms, of two nodes.
func (l *links) between(a, b int) (goodput, rttMs float64) {
	var p pair
	if at := a*l.nodes + b; l.pairs != nil {
		p = l.pairs[at]
	} else {
		p = l.sparse[at]
	}
	if p.goodput == 0 {
		p.goodput = l.middle().goodput
	}
	if p.rttMs == 0 {
		p.rttMs = l.middle().rttMs
	}
	return p.goodput, p.rttMs
}
