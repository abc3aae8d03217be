package kvstore

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// The file that Export writes: exportMagic; then for each block, parents before
// children, tagBlock, the header as package block encodes it, and the payload; then
// tagEnd and the number of blocks as 8 bytes, little endian. A file without that end
// is not whole, but its blocks are good.
const (
	exportMagic = "tandem-kv\x00\x01\n"
	tagBlock    = 'B'
	tagEnd      = 'E'

	exportBuffer = 1 << 16
)

// Exported says what Export wrote.
type Exported struct {
	Blocks  int   `json:"blocks"`
	Bytes   int64 `json:"bytes"`   // of payloads
	Skipped int   `json:"skipped"` // gone, damaged, or of a shape that nobody knows
}

// Export writes the block of that id, all before it and all that follow it; the zero
// id stands for everything. Each block is verified before it is written.
// ErrNotFound: no such block is known.
func (s *Store) Export(ctx context.Context, w io.Writer, id block.ID) (Exported, error) {
	infos, err := s.scan(ctx)
	if err != nil {
		return Exported{}, err
	}
	infos = s.around(infos, id)
	if len(infos) == 0 && !id.IsZero() {
		return Exported{}, fmt.Errorf("export block %v: %w", id, ErrNotFound)
	}
	var out Exported
	var scratch []byte
	buffered := bufio.NewWriterSize(w, exportBuffer)
	buffered.WriteString(exportMagic) // a bufio.Writer keeps its error for Flush
	for _, n := range infos {
		if n.Tiers == 0 {
			continue
		}
		if err := s.exportBlock(ctx, buffered, n, reuse(&scratch), &out); err != nil {
			return out, fmt.Errorf("export block %v: %w", n.ID, err)
		}
	}
	buffered.WriteByte(tagEnd)
	buffered.Write(binary.LittleEndian.AppendUint64(nil, uint64(out.Blocks)))
	if err := buffered.Flush(); err != nil {
		return out, fmt.Errorf("export KV blocks: %w", err)
	}
	return out, nil
}

// around gives those of nodes, parents before children, that are id, lead to it or
// follow it.
func (s *Store) around(infos []prefix.Info, id block.ID) []prefix.Info {
	if id.IsZero() {
		return infos
	}
	s.mu.Lock()
	path := s.mu.tree.Path(id, pathMax, nil)
	s.mu.Unlock()
	leads := map[block.ID]bool{}
	for _, p := range path {
		leads[p] = p != id
	}
	out := below(infos, id)
	for _, n := range infos {
		if leads[n.ID] {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b prefix.Info) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

func (s *Store) exportBlock(ctx context.Context, w io.Writer, n prefix.Info, scratch func(int) []byte, out *Exported) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	h, payload, release, err := s.peek(ctx, n, scratch)
	if err != nil {
		out.Skipped++
		return nil
	}
	defer release()
	if _, err := w.Write(block.AppendHeader([]byte{tagBlock}, h)); err != nil {
		return err
	}
	if _, err := w.Write(payload); err != nil {
		return err
	}
	out.Blocks++
	out.Bytes += int64(len(payload))
	return nil
}

// peek gives a verified block without counting a use or moving it between tiers.
func (s *Store) peek(ctx context.Context, n prefix.Info, scratch func(int) []byte) (block.Header, []byte, func(), error) {
	s.mu.Lock()
	held := s.mu.ram[n.ID]
	if held == nil {
		s.mu.Unlock()
		var payload []byte
		h, err := s.get(ctx, n, func(size int) []byte {
			payload = scratch(size)
			return payload
		})
		return h, payload, func() {}, err
	}
	ref := held.ref()
	s.mu.Unlock()
	if err := s.verify(ref.Header, n, ref.Payload()); err != nil {
		ref.Release()
		return block.Header{}, nil, nil, err
	}
	return ref.Header, ref.Payload(), ref.Release, nil
}

// Imported says what Import did with each block of the file.
type Imported struct {
	Blocks  int   `json:"blocks"`  // now held
	Bytes   int64 `json:"bytes"`   // their payloads
	Held    int   `json:"held"`    // were held already
	Unknown int   `json:"unknown"` // of a shape that nobody knows: load their model first
	Orphans int   `json:"orphans"` // nothing leads to them
	Damaged int   `json:"damaged"` // do not verify
	NoRoom  int   `json:"no_room"` // found no memory
}

// Import takes the blocks of a file that Export wrote, into the disk tier if there is
// one, else into RAM. Each is verified before it is visible; those that do not are
// passed over. The error says why it ended early: the file is damaged where blocks
// begin or is not whole (io.ErrUnexpectedEOF), writing failed (ErrFull), or ctx ended,
// which is looked at between blocks.
func (s *Store) Import(ctx context.Context, r io.Reader) (Imported, error) {
	in := importer{store: s, r: bufio.NewReaderSize(r, exportBuffer)}
	magic := make([]byte, len(exportMagic))
	if _, err := io.ReadFull(in.r, magic); err != nil || string(magic) != exportMagic {
		return in.out, fmt.Errorf("import KV blocks: %w: this is not a file that export wrote", block.ErrInvalid)
	}
	for {
		more, err := in.next(ctx)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return in.out, fmt.Errorf("import KV blocks, after %d: %w", in.seen, err)
		}
		if !more {
			return in.out, nil
		}
	}
}

// importer reads one file.
type importer struct {
	store *Store
	r     *bufio.Reader
	seen  uint64 // blocks that were read
	head  []byte
	out   Imported
}

// next reads a block, or the end.
func (in *importer) next(ctx context.Context) (more bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	tag, err := in.r.ReadByte()
	if err != nil {
		return false, err
	}
	switch tag {
	case tagEnd:
		var count [8]byte
		if _, err := io.ReadFull(in.r, count[:]); err != nil {
			return false, err
		}
		if n := binary.LittleEndian.Uint64(count[:]); n != in.seen {
			return false, fmt.Errorf("%w: it says that it has %d blocks, and has %d", block.ErrDamaged, n, in.seen)
		}
		return false, nil
	case tagBlock:
		h, err := in.header()
		if err != nil {
			return false, err
		}
		in.seen++
		return true, in.payload(ctx, h)
	}
	return false, fmt.Errorf("%w: tag %#x where a block should begin", block.ErrDamaged, tag)
}

// header reads a header, whose length is bounded by block.HeaderBytesMax.
func (in *importer) header() (block.Header, error) {
	prefix, err := in.r.Peek(block.HeaderPrefixBytes)
	if err != nil {
		return block.Header{}, err
	}
	n, err := block.HeaderLength(prefix)
	if err != nil {
		return block.Header{}, err
	}
	in.head = slices.Grow(in.head[:0], n)[:n]
	if _, err := io.ReadFull(in.r, in.head); err != nil {
		return block.Header{}, err
	}
	h, _, err := block.DecodeHeader(in.head)
	return h, err
}

// payload reads the payload of a block into memory of the RAM tier and takes the
// block over, or passes over it.
func (in *importer) payload(ctx context.Context, h block.Header) error {
	buf, reason, err := in.store.admit(h)
	if err != nil {
		return err
	}
	if buf == nil {
		*reason(&in.out)++
		_, err := io.CopyN(io.Discard, in.r, int64(h.PayloadBytes))
		return err
	}
	defer in.store.unlease(h)
	if _, err := io.ReadFull(in.r, buf.Bytes()); err != nil {
		buf.Release()
		return err
	}
	took, err := in.store.take(ctx, h, buf)
	switch {
	case err != nil:
		return err
	case !took:
		in.out.Damaged++
	default:
		in.out.Blocks++
		in.out.Bytes += int64(h.PayloadBytes)
	}
	return nil
}

// admit gives memory for a block of an import, with a lease on the block before it
// that unlease ends, or the counter of the reason why it is passed over.
func (s *Store) admit(h block.Header) (*Buf, func(*Imported) *int, error) {
	shape, known := s.opts.Shapes(h.Fingerprint)
	if !known {
		return nil, func(i *Imported) *int { return &i.Unknown }, nil
	}
	if h.PayloadBytes != h.Count*shape.Bytes() {
		return nil, func(i *Imported) *int { return &i.Damaged }, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return nil, nil, ErrClosed
	case s.disk != nil && !s.fitsDisk(h.PayloadBytes):
		return nil, func(i *Imported) *int { return &i.NoRoom }, nil
	case s.heldLocked(h.ID):
		return nil, func(i *Imported) *int { return &i.Held }, nil
	case h.Start > 0 && !s.mu.tree.Lease(h.Parent):
		return nil, func(i *Imported) *int { return &i.Orphans }, nil
	}
	buf := s.allocateLocked(h.PayloadBytes)
	if buf == nil {
		s.mu.stats.RAM.Refusals++
		s.unleaseLocked(h)
	}
	return buf, func(i *Imported) *int { return &i.NoRoom }, nil
}

// unlease ends the lease on the block before h that admit took.
func (s *Store) unlease(h block.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unleaseLocked(h)
}

func (s *Store) unleaseLocked(h block.Header) {
	if h.Start > 0 {
		s.mu.tree.Release(h.Parent)
	}
}

// take verifies an imported block and makes it visible. The reference to its memory
// is gone afterwards. False: it did not verify.
func (s *Store) take(ctx context.Context, h block.Header, buf *Buf) (bool, error) {
	info := prefix.Info{Block: prefix.Block{ID: h.ID, Parent: h.Parent, Start: h.Start, Count: h.Count, Bytes: int64(h.PayloadBytes)}}
	if err := s.verify(h, info, buf.Bytes()); err != nil {
		buf.Release()
		s.opts.Log.Warn("an imported KV block did not verify", "id", h.ID.String(), "error", err)
		return false, nil
	}
	if s.disk == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.closed || s.mu.ram[h.ID] != nil {
			buf.Release()
			return !s.mu.closed, nil
		}
		return s.insertLocked(h, buf), nil
	}
	defer buf.Release()
	if err := s.disk.Put(ctx, []Record{{Header: h, Payload: buf.Bytes()}}); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addLocked(prefix.Disk, h) != nil {
		return false, nil
	}
	s.mu.stats.Disk.BlocksIn++
	s.mu.stats.Disk.BytesIn += int64(h.PayloadBytes)
	return true, nil
}
