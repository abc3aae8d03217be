package scheduler_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"

	"tandem/scheduler"
)

func TestEventsComeBack(t *testing.T) {
	feed := scheduler.NewFeed(42)
	var events []scheduler.Event
	events = append(events, feed.Events(scheduler.Stored, scheduler.Disk, chainOf(nil, 1, scheduler.EventIDsMax+1))...)
	events = append(events, feed.Events(scheduler.Removed, scheduler.Resident, chainOf(nil, 1, 1))...)
	events = append(events, feed.Events(scheduler.Cleared, 0, nil)...)
	if n := len(feed.Events(scheduler.Stored, scheduler.RAM, nil)); n != 0 {
		t.Errorf("no ids make %d events", n)
	}
	if len(events) != 4 || feed.Seq() != 4 {
		t.Fatalf("%d events, the last is %d; want 4", len(events), feed.Seq())
	}
	for _, e := range events {
		b := scheduler.AppendEvent(nil, e)
		got, err := scheduler.DecodeEvent(b)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("event %d: %+v, %v", e.Seq, got, err)
		}
		if !scheduler.IsEvent(b) {
			t.Errorf("event %d is not seen as one", e.Seq)
		}
		for cut := range min(len(b), 60) {
			if _, err := scheduler.DecodeEvent(b[:cut]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes of event %d: %v", cut, e.Seq, err)
			}
		}
	}
}

func TestSnapshotsComeBack(t *testing.T) {
	for _, n := range []int{0, 1, 61_680, 61_681, 200_000} {
		s := scheduler.Snapshot{Origin: 3, Seq: 9, Held: held(chainOf(nil, 1, n), scheduler.Disk)}
		var assembly scheduler.Assembly
		parts, whole := 0, false
		for b := range s.Messages() {
			if len(b) > scheduler.MessageBytesMax {
				t.Fatalf("a part has %d bytes", len(b))
			}
			if whole || scheduler.IsEvent(b) {
				t.Fatal("a part follows the last one, or is an event")
			}
			parts++
			got, done, err := assembly.Add(b)
			if err != nil {
				t.Fatal(err)
			}
			if whole = done; done && (got.Origin != 3 || got.Seq != 9 || !slices.Equal(got.Held, s.Held)) {
				t.Errorf("%d blocks: another snapshot came back, of %d", n, len(got.Held))
			}
		}
		if !whole {
			t.Errorf("%d blocks in %d parts: not whole", n, parts)
		}
	}
}

func TestPartsOutOfOrder(t *testing.T) {
	s := scheduler.Snapshot{Origin: 3, Seq: 9, Held: held(chainOf(nil, 1, 100_000), scheduler.RAM)}
	var parts [][]byte
	for b := range s.Messages() {
		parts = append(parts, bytes.Clone(b))
	}
	s.Seq++
	var other []byte
	for b := range s.Messages() {
		other = bytes.Clone(b)
	}
	for what, order := range map[string][][]byte{
		"the second first":          {parts[1]},
		"the first twice":           {parts[0], parts[0]},
		"a part of another":         {parts[0], other},
		"cut":                       {parts[0][:len(parts[0])-1]},
		"an event between":          {parts[0], scheduler.AppendEvent(nil, scheduler.Event{Seq: 1, Kind: scheduler.Cleared})},
		"longer than what was said": {append(bytes.Clone(parts[0]), 0)},
	} {
		var assembly scheduler.Assembly
		var err error
		for _, b := range order {
			_, _, err = assembly.Add(b)
		}
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		if _, _, err := assembly.Add(parts[0]); err != nil {
			t.Errorf("%s, then anew: %v", what, err)
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	feed := scheduler.NewFeed(1)
	for _, kind := range []scheduler.Kind{scheduler.Stored, scheduler.Removed, scheduler.Cleared} {
		for _, e := range feed.Events(kind, scheduler.RAM, chainOf(nil, 1, 3)) {
			f.Add(scheduler.AppendEvent(nil, e))
		}
	}
	f.Add([]byte{1, 'e'})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := scheduler.DecodeEvent(b)
		if err != nil {
			if !errors.Is(err, scheduler.ErrInvalid) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		if !bytes.Equal(scheduler.AppendEvent(nil, e), b) {
			t.Error("encoded anew it differs")
		}
	})
}

func FuzzAssembly(f *testing.F) {
	for _, n := range []int{0, 1, 5} {
		for b := range (scheduler.Snapshot{Origin: 1, Seq: 2, Held: held(chainOf(nil, 1, n), scheduler.RAM)}).Messages() {
			f.Add(bytes.Clone(b), bytes.Clone(b))
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var assembly scheduler.Assembly
		for _, b := range [][]byte{first, second} {
			s, done, err := assembly.Add(b)
			if err != nil && !errors.Is(err, scheduler.ErrInvalid) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("an error of no kind: %v", err)
			}
			if len(s.Held)*17 > len(first)+len(second) {
				t.Errorf("%d blocks of %d bytes", len(s.Held), len(first)+len(second))
			}
			if done && err != nil {
				t.Error("whole, and an error")
			}
		}
	})
}
