package scheduler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"

	"tandem/kvstore/block"
)

// Limits of messages.
const (
	// MessageBytesMax is the longest message that is made or read.
	MessageBytesMax = 1 << 20
	// EventIDsMax is the most ids of one event: 64 KiB.
	EventIDsMax = 4096
	// SnapshotBlocksMax is the most blocks of a snapshot that is put together, so at
	// most 18 MB. A node with more sends those that it likes best.
	SnapshotBlocksMax = 1 << 20

	heldBytes     = len(block.ID{}) + 1
	eventHead     = 1 + 1 + 8 + 8 + 1 + 4
	partHead      = 1 + 1 + 8 + 8 + 4 + 4 + 1 + 4
	partHeldMax   = (MessageBytesMax - partHead) / heldBytes
	codecVersion  = 1
	messageEvent  = 'e'
	messagePart   = 's'
	partIsNotLast = 0
	partIsLast    = 1
)

// ErrInvalid is matched by errors about messages whose content is not allowed. Those
// that end too early give io.ErrUnexpectedEOF.
var ErrInvalid = errors.New("invalid index message")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// AppendEvent encodes an event, whose ids are at most EventIDsMax: version, 'e',
// origin, number, kind and tier (a byte, tier in its high half), count of ids (4 bytes), ids. Numbers
// are little-endian.
func AppendEvent(dst []byte, e Event) []byte {
	dst = append(dst, codecVersion, messageEvent)
	dst = binary.LittleEndian.AppendUint64(dst, e.Origin)
	dst = binary.LittleEndian.AppendUint64(dst, e.Seq)
	dst = append(dst, byte(e.Kind)|byte(e.Tier)<<4)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.IDs)))
	for i := range e.IDs {
		dst = append(dst, e.IDs[i][:]...)
	}
	return dst
}

// DecodeEvent reads what AppendEvent makes, and refuses everything else. The event
// shares nothing with b.
func DecodeEvent(b []byte) (Event, error) {
	if err := checkHead(b, messageEvent, eventHead); err != nil {
		return Event{}, err
	}
	e := Event{
		Origin: binary.LittleEndian.Uint64(b[2:]),
		Seq:    binary.LittleEndian.Uint64(b[10:]),
		Kind:   Kind(b[18] & 0xf),
		Tier:   Tier(b[18] >> 4),
	}
	n := binary.LittleEndian.Uint32(b[19:])
	b = b[eventHead:]
	switch {
	case e.Kind < Stored || e.Kind > Cleared:
		return Event{}, invalid("kind %d; allowed: %d to %d", e.Kind, Stored, Cleared)
	case e.Tier >= tierCount:
		return Event{}, invalid("tier %d; allowed: 0 to %d", e.Tier, tierCount-1)
	case e.Seq == 0:
		return Event{}, invalid("event number 0; the first is 1")
	case n > EventIDsMax:
		return Event{}, invalid("%d ids in an event; at most %d", n, EventIDsMax)
	case e.Kind == Cleared && (n != 0 || e.Tier != 0):
		return Event{}, invalid("an event that clears everything has %d ids, tier %d; it has none", n, e.Tier)
	case e.Kind != Cleared && n == 0:
		return Event{}, invalid("an event without ids")
	case len(b) < int(n)*len(block.ID{}):
		return Event{}, fmt.Errorf("index event with %d ids: %w", n, io.ErrUnexpectedEOF)
	case len(b) > int(n)*len(block.ID{}):
		return Event{}, invalid("%d bytes follow the %d ids of an event", len(b)-int(n)*len(block.ID{}), n)
	}
	if n > 0 {
		e.IDs = make([]block.ID, n)
	}
	for i := range e.IDs {
		b = b[copy(e.IDs[i][:], b):]
		if e.IDs[i].IsZero() {
			return Event{}, invalid("id %d of an event is zero", i)
		}
	}
	return e, nil
}

// checkHead checks what all messages have in common.
func checkHead(b []byte, kind byte, size int) error {
	switch {
	case len(b) > MessageBytesMax:
		return invalid("%d bytes; at most %d", len(b), MessageBytesMax)
	case len(b) < size:
		return fmt.Errorf("index message of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	case b[0] != codecVersion:
		return invalid("version %d; this program reads %d: both nodes need the same release line", b[0], codecVersion)
	case b[1] != kind:
		return invalid("message of kind %q where %q belongs", b[1], kind)
	}
	return nil
}

// IsEvent tells an encoded event from a part of a snapshot.
func IsEvent(b []byte) bool { return len(b) > 1 && b[1] == messageEvent }

// Messages encodes a snapshot in parts of at most MessageBytesMax: version, 's',
// origin, number, all blocks (4 bytes), the part's place among them (4 bytes), 1 if
// it is the last part, its blocks (4 bytes), and for each the id and a byte of tiers.
// Each part is lent until the next one is made. Blocks beyond SnapshotBlocksMax are
// left out.
func (s Snapshot) Messages() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		held := s.Held[:min(len(s.Held), SnapshotBlocksMax)]
		buffer := make([]byte, 0, partHead+min(len(held), partHeldMax)*heldBytes)
		for at := 0; ; {
			n := min(len(held)-at, partHeldMax)
			buffer = s.appendPart(buffer[:0], held, at, n)
			at += n
			if !yield(buffer) || at == len(held) {
				return
			}
		}
	}
}

func (s Snapshot) appendPart(dst []byte, held []Held, at, n int) []byte {
	last := byte(partIsNotLast)
	if at+n == len(held) {
		last = partIsLast
	}
	dst = append(dst, codecVersion, messagePart)
	dst = binary.LittleEndian.AppendUint64(dst, s.Origin)
	dst = binary.LittleEndian.AppendUint64(dst, s.Seq)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(held)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(at))
	dst = append(dst, last)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	for i := range held[at : at+n] {
		dst = append(dst, held[at+i].ID[:]...)
		dst = append(dst, byte(held[at+i].Tiers))
	}
	return dst
}

// Assembly puts the parts of one snapshot together. The zero one is ready for the
// first part. It grows with what has come, not with what was announced.
type Assembly struct {
	begun bool
	all   int
	s     Snapshot
}

// Add takes the next part. True: that was the last one, the snapshot is whole, and
// the assembly ready for another. After an error the snapshot is lost.
func (a *Assembly) Add(b []byte) (Snapshot, bool, error) {
	s, last, err := a.add(b)
	if err != nil || last {
		*a = Assembly{}
	}
	return s, last, err
}

func (a *Assembly) add(b []byte) (Snapshot, bool, error) {
	if err := checkHead(b, messagePart, partHead); err != nil {
		return Snapshot{}, false, err
	}
	origin, seq := binary.LittleEndian.Uint64(b[2:]), binary.LittleEndian.Uint64(b[10:])
	all, at := binary.LittleEndian.Uint32(b[18:]), binary.LittleEndian.Uint32(b[22:])
	last, n := b[26], binary.LittleEndian.Uint32(b[27:])
	b = b[partHead:]
	if !a.begun {
		*a = Assembly{begun: true, all: int(all), s: Snapshot{Origin: origin, Seq: seq}}
	}
	switch {
	case all > SnapshotBlocksMax:
		return Snapshot{}, false, invalid("a snapshot of %d blocks; at most %d", all, SnapshotBlocksMax)
	case origin != a.s.Origin || seq != a.s.Seq || int(all) != a.all:
		return Snapshot{}, false, invalid("a part of another snapshot")
	case int(at) != len(a.s.Held):
		return Snapshot{}, false, invalid("a part begins at block %d; the one before ends at %d", at, len(a.s.Held))
	case int64(n) > int64(partHeldMax) || int64(n) > int64(a.all)-int64(at):
		return Snapshot{}, false, invalid("a part has %d blocks; %d are left, and at most %d fit", n, a.all-int(at), partHeldMax)
	case last > partIsLast || (last == partIsLast) != (int(at+n) == a.all) || n == 0 && last != partIsLast:
		return Snapshot{}, false, invalid("a part of %d blocks at %d of %d says %d for whether it is the last", n, at, all, last)
	case len(b) < int(n)*heldBytes:
		return Snapshot{}, false, fmt.Errorf("part of a snapshot with %d blocks: %w", n, io.ErrUnexpectedEOF)
	case len(b) > int(n)*heldBytes:
		return Snapshot{}, false, invalid("%d bytes follow the blocks of a part", len(b)-int(n)*heldBytes)
	}
	for i := range int(n) {
		var h Held
		b = b[copy(h.ID[:], b):]
		h.Tiers = Tiers(b[0])
		b = b[1:]
		if h.ID.IsZero() || h.Tiers == 0 || h.Tiers&^allTiers != 0 {
			return Snapshot{}, false, invalid("block %d of a snapshot has id %v, tiers %d", int(at)+i, h.ID, h.Tiers)
		}
		a.s.Held = append(a.s.Held, h)
	}
	if last == partIsLast {
		return a.s, true, nil
	}
	return Snapshot{}, false, nil
}
