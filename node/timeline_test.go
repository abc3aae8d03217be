package node

import (
	"fmt"
	"testing"
	"time"
)

func TestTimelinesAreBounded(t *testing.T) {
	tl := newTimelines(func() time.Time { return time.Unix(1000, 0) })
	for i := range 3 * timelinesOpen {
		tl.listen(RequestPlaced{ID: fmt.Sprintf("open-%d", i)})
	}
	for i := range 3 * timelinesKept {
		id := fmt.Sprintf("r-%d", i)
		tl.listen(RequestPlaced{ID: id, Decode: "n1"})
		for range 2 * movesKept {
			tl.listen(KVMoved{ID: id})
			tl.listen(RequestMoved{ID: id, To: "n2"})
		}
		tl.listen(RequestFinished{ID: id, Seconds: 2})
	}
	if open, order := len(tl.mu.open), len(tl.mu.order); open > timelinesOpen || order > 2*timelinesOpen {
		t.Errorf("%d open, %d in order", open, order)
	}
	all := tl.recent(0, timelinesKept)
	if len(all.Requests) != timelinesKept || all.Last != 3*timelinesKept {
		t.Fatalf("%d requests, the last is %d", len(all.Requests), all.Last)
	}
	for i, r := range all.Requests {
		if want := uint64(2*timelinesKept + i + 1); r.Seq != want || len(r.Fetches) != movesKept || len(r.Moves) != movesKept || r.Node != "n2" {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	if got := tl.recent(all.Last-2, timelinesKept).Requests; len(got) != 2 || got[1].Seq != all.Last {
		t.Errorf("after the last but two: %d", len(got))
	}
	if got := tl.recent(0, 1).Requests; len(got) != 1 || got[0].Seq != all.Last {
		t.Errorf("the newest one: %d", len(got))
	}
	if got := tl.recent(all.Last, 10).Requests; len(got) != 0 {
		t.Errorf("after the last: %d", len(got))
	}
	if r := all.Requests[0]; !r.Began.Equal(time.Unix(998, 0)) {
		t.Errorf("it began at %v", r.Began)
	}
}
