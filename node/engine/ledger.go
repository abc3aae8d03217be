package engine

// ledger counts the cells of the KV cache exactly, although sequences share rows.
// Every sequence holds a chain of runs from position 0 on; a common prefix is a
// common start of two chains.
//
//	      ┌─ run (7 rows) ◄─ entry A
//	run (12 rows)
//	      └─ run (3 rows) ◄─ entry B         used = 22
//
// Invariants: used is the sum of n over all runs; live is that sum over the runs
// with live > 0.
type ledger struct {
	used int // cells that hold a row
	live int // of these, cells of running sequences
}

// run is a piece of a chain that the same entries hold.
//
// Invariants: n > 0; refs is the number of entries that end here plus the number of
// runs whose parent this is, and refs > 0; live is the number of running entries
// that end here or further on.
type run struct {
	parent *run // nil: begins at position 0
	n      int
	refs   int
	live   int
}

// grow appends n rows to the chain of a running entry and returns its new end.
func (l *ledger) grow(end *run, n int) *run {
	l.used += n
	l.live += n
	if end != nil && end.refs == 1 {
		end.n += n
		return end
	}
	return &run{parent: end, n: n, refs: 1, live: 1}
}

// fork gives a running entry the first n rows of a chain of the given length and
// returns the end of its own chain, nil if n is 0.
func (l *ledger) fork(end *run, length, n int) *run {
	if n == 0 {
		return nil
	}
	at, start := end, length
	for start >= n {
		if start < length {
			at, length = at.parent, start
		}
		at.mergeParent()
		start = length - at.n
	}
	if n < length {
		at = at.split(n - start)
	}
	at.refs++
	l.enliven(at)
	return at
}

// split cuts a run after its first n rows and returns the first part, to which
// nobody refers yet but the second.
func (r *run) split(n int) *run {
	first := &run{parent: r.parent, n: n, refs: 1, live: r.live}
	r.parent, r.n = first, r.n-n
	return first
}

// mergeParent joins r with its parent if nobody else refers to that, so that
// chains stay as short as the sharing demands.
func (r *run) mergeParent() {
	for p := r.parent; p != nil && p.refs == 1; p = r.parent {
		r.parent, r.n = p.parent, r.n+p.n
	}
}

// drop gives up an entry's chain. A running entry is retired first.
func (l *ledger) drop(end *run) {
	for r := end; r != nil; r = r.parent {
		if r.refs--; r.refs > 0 {
			return
		}
		l.used -= r.n
	}
}

// enliven counts a chain as one of a running entry.
func (l *ledger) enliven(end *run) {
	for r := end; r != nil; r = r.parent {
		if r.live++; r.live == 1 {
			l.live += r.n
		}
	}
}

// retire undoes enliven when a sequence has ended.
func (l *ledger) retire(end *run) {
	for r := end; r != nil; r = r.parent {
		if r.live--; r.live == 0 {
			l.live -= r.n
		}
	}
}
