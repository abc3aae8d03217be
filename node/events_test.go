package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tandem/cluster/member"
)

// TestRecentEventsAreBounded: the last ones are remembered, in order.
func TestRecentEventsAreBounded(t *testing.T) {
	h := newEventHub("n")
	for i := range recentEvents + 40 {
		h.emit(RequestParked{ID: fmt.Sprint(i)})
	}
	recent, _, end := h.open()
	end()
	if len(recent) != recentEvents {
		t.Fatalf("%d events are remembered, want %d", len(recent), recentEvents)
	}
	for i, e := range recent {
		if want := fmt.Sprint(i + 40); e.event.(RequestParked).ID != want {
			t.Fatalf("event %d is %v, want %s", i, e.event, want)
		}
	}
}

func TestSubscribersMissNothingBetweenOldAndNew(t *testing.T) {
	h := newEventHub("n")
	h.emit(RequestParked{ID: "old"})
	recent, ch, end := h.open()
	defer end()
	h.emit(RequestParked{ID: "new"})
	if len(recent) != 1 || recent[0].event.(RequestParked).ID != "old" {
		t.Fatalf("remembered: %v", recent)
	}
	if e := <-ch; e.kind != "request_parked" || !strings.Contains(string(e.data), `"node":"n"`) || !strings.Contains(string(e.data), `"id":"new"`) {
		t.Fatalf("then came %s %s", e.kind, e.data)
	}
}

func FuzzCheckEvent(f *testing.F) {
	id := member.ID(strings.Repeat("ab", 16))
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","node":"` + string(id) + `","kind":"status","data":{}}`))
	f.Add([]byte(`{"node":"` + string(id) + `","kind":"","data":{}}`))
	f.Add([]byte(`{"node":"other","kind":"ready","data":{"ready":true}}`))
	f.Add([]byte(`{"node":"` + string(id) + `","kind":"ready","data":[]}`))
	f.Add([]byte(`5`))
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, err := checkEvent(data, id)
		if err != nil {
			return
		}
		var e struct {
			Node, Kind string
			Data       map[string]any
		}
		if err := json.Unmarshal(data, &e); err != nil || e.Node != string(id) || e.Kind != kind || e.Kind == "" || e.Data == nil {
			t.Fatalf("%q was taken as %q: %+v %v", data, kind, e, err)
		}
	})
}

// Nothing is missed from the moment on in which the subscriber is told that it has begun.
func TestEventsSinceOpened(t *testing.T) {
	hub := newEventHub("n")
	enough := errors.New("enough")
	err := hub.subscribe(t.Context(), func() { hub.emit(RequestMoved{ID: "r"}) }, func(name string, data []byte) error {
		if name != "request_moved" || !strings.Contains(string(data), `"r"`) {
			t.Errorf("%s %s", name, data)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}
