package scheduler

import "tandem/cluster/member"

// links are the measured ways between nodes, by their places in State.Nodes; 0 is
// not known.
type links struct {
	nodes, entry         int
	rttMs                []float64 // from the entry node
	pairGoodput          []float64 // of two nodes, nodes*a+b; only if KV can move
	pairRTTMs            []float64
	goodputMid, rttMsMid float64 // medians, for what is not known
}

func newLinks(s *State, places map[member.ID]int) links {
	n := len(s.Nodes)
	l := links{nodes: n, entry: -1, rttMs: make([]float64, n)}
	if at, ok := places[s.Entry]; ok {
		l.entry = at
	}
	if s.Transfers {
		l.pairGoodput, l.pairRTTMs = make([]float64, n*n), make([]float64, n*n)
	}
	goodputs, rtts := make([]float64, 0, len(s.Links)), make([]float64, 0, len(s.Links))
	for i := range s.Links {
		link := &s.Links[i]
		goodput, rttMs := 0.0, 0.0
		if link.Goodput.fresh(s.Tuning.LinkStale) {
			goodput = link.Goodput.Value
			goodputs = append(goodputs, goodput)
		}
		if link.RTTMs.fresh(s.Tuning.LinkStale) {
			rttMs = link.RTTMs.Value
			rtts = append(rtts, rttMs)
		}
		a, okA := places[link.A]
		b, okB := places[link.B]
		if okA && okB {
			l.set(a, b, goodput, rttMs)
			l.set(b, a, goodput, rttMs)
		}
	}
	l.goodputMid = middle(goodputs, goodputDefault, true)
	l.rttMsMid = middle(rtts, rttMsDefault, false)
	return l
}

func (l *links) set(a, b int, goodput, rttMs float64) {
	if a == l.entry && rttMs > 0 {
		l.rttMs[b] = rttMs
	}
	if l.pairGoodput == nil {
		return
	}
	if goodput > 0 {
		l.pairGoodput[a*l.nodes+b] = goodput
	}
	if rttMs > 0 {
		l.pairRTTMs[a*l.nodes+b] = rttMs
	}
}

// fromEntry is the RTT, in ms, from the entry node.
func (l *links) fromEntry(to int) float64 {
	if l.rttMs[to] > 0 {
		return l.rttMs[to]
	}
	return l.rttMsMid
}

// between is goodput, in bytes/s, and RTT, in ms, of two nodes.
func (l *links) between(a, b int) (goodput, rttMs float64) {
	goodput, rttMs = l.pairGoodput[a*l.nodes+b], l.pairRTTMs[a*l.nodes+b]
	if goodput == 0 {
		goodput = l.goodputMid
	}
	if rttMs == 0 {
		rttMs = l.rttMsMid
	}
	return goodput, rttMs
}
