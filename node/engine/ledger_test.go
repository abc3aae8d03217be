package engine

import "testing"

// TestChainsStayShort shares and gives up prefixes of one resident chain many
// times: the pieces it was cut into must not add up.
func TestChainsStayShort(t *testing.T) {
	var l ledger
	end := l.grow(nil, 1000)
	l.retire(end)
	for n := 1; n < 1000; n++ {
		other := l.grow(l.fork(end, 1000, n), 5)
		if l.used != 1005 || l.live != n+5 {
			t.Fatalf("sharing %d: %d used, %d live", n, l.used, l.live)
		}
		l.retire(other)
		l.drop(other)
	}
	depth := 0
	for r := end; r != nil; r = r.parent {
		depth++
	}
	if depth > 3 || l.used != 1000 || l.live != 0 {
		t.Errorf("chain of %d runs, %d used, %d live", depth, l.used, l.live)
	}
	l.drop(end)
	if l.used != 0 {
		t.Errorf("%d used at the end", l.used)
	}
}
