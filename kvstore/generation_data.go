package kvstore

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"tandem/kvstore/block"
)

// writeBlocks writes a batch to a data file, from offset at on, and tells where each
// block is. Payloads are written from where they are. After an error any part of the
// batch may be in the file, and nothing points to it.
func writeBlocks(data io.WriterAt, at int64, batch []Record) ([]diskBlock, error) {
	blocks := make([]diskBlock, len(batch))
	var header []byte
	for i, rec := range batch {
		b := diskBlock{rec.Header.ID, diskMetaOf(rec.Header), at}
		header = block.AppendHeader(header[:0], rec.Header)
		if _, err := data.WriteAt(header, at); err != nil {
			return nil, fmt.Errorf("block %s: %w", b.id, err)
		}
		if _, err := data.WriteAt(rec.Payload, at+int64(len(header))); err != nil {
			return nil, fmt.Errorf("block %s: %w", b.id, err)
		}
		blocks[i], at = b, b.end()
	}
	return blocks, nil
}

// readBlock reads a block from a data file, its payload into the memory that dst gives.
// The header must be what the index says before any memory is asked for. Errors match
// block.ErrDamaged, or are errNoMemory.
func readBlock(data io.ReaderAt, b diskBlock, dst func(n int) []byte) (block.Header, error) {
	head := make([]byte, block.HeaderBytes(int(b.count)))
	if _, err := data.ReadAt(head, b.offset); err != nil {
		return block.Header{}, fmt.Errorf("%w: %s: reading its header: %w", block.ErrDamaged, b.id, err)
	}
	h, n, err := block.DecodeHeader(head)
	if err != nil {
		return block.Header{}, fmt.Errorf("%w: %s: %w", block.ErrDamaged, b.id, err)
	}
	if h.ID != b.id || diskMetaOf(h) != b.diskMeta {
		return block.Header{}, fmt.Errorf("%w: %s: its header is that of block %s, start %d, count %d", block.ErrDamaged, b.id, h.ID, h.Start, h.Count)
	}
	buf := dst(h.PayloadBytes)
	if len(buf) < h.PayloadBytes {
		return block.Header{}, errNoMemory
	}
	if _, err := data.ReadAt(buf[:h.PayloadBytes], b.offset+int64(n)); err != nil {
		return block.Header{}, fmt.Errorf("%w: %s: reading its payload: %w", block.ErrDamaged, b.id, err)
	}
	return h, nil
}

// checkPlaces sorts blocks by their places in a data file of so many bytes and tells
// where the last one ends. The error matches block.ErrDamaged if one of them is not
// within the file, or begins within another.
func checkPlaces(blocks []diskBlock, bytes int64) (end int64, err error) {
	slices.SortFunc(blocks, func(a, b diskBlock) int { return cmp.Compare(a.offset, b.offset) })
	for _, b := range blocks {
		if b.offset < end {
			return 0, fmt.Errorf("%w: block %s begins at %d, within one that ends at %d", block.ErrDamaged, b.id, b.offset, end)
		}
		if end = b.end(); end > bytes {
			return 0, fmt.Errorf("%w: block %s ends at %d; the data file has %d bytes", block.ErrDamaged, b.id, end, bytes)
		}
	}
	return end, nil
}
