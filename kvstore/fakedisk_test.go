package kvstore_test

import (
	"context"
	"sync"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

// fakeDisk is a disk tier in memory that fails and lies on demand.
type fakeDisk struct {
	budget int64

	// onPut, if not nil, decides what becomes of a batch: which of its records are
	// kept, and the error. It may wait.
	onPut func(ctx context.Context, batch []kvstore.Record) ([]kvstore.Record, error)
	// onGet, if not nil, may answer instead of the disk; done false leaves it to it.
	onGet func(ctx context.Context, d *fakeDisk, id block.ID, dst func(int) []byte) (h block.Header, err error, done bool)

	mu struct {
		sync.Mutex
		held     map[block.ID]kvstore.Record
		order    []block.ID // in which blocks were put
		puts     int
		gets     int
		forgot   []block.ID
		touched  map[block.ID]int
		isClosed bool
	}
}

func newFakeDisk() *fakeDisk {
	d := &fakeDisk{}
	d.mu.held, d.mu.touched = map[block.ID]kvstore.Record{}, map[block.ID]int{}
	return d
}

func (d *fakeDisk) Put(ctx context.Context, batch []kvstore.Record) error {
	var err error
	d.mu.Lock()
	d.mu.puts++
	d.mu.Unlock()
	if d.onPut != nil {
		batch, err = d.onPut(ctx, batch)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range batch {
		d.mu.held[r.Header.ID] = kvstore.Record{Header: r.Header, Payload: append([]byte(nil), r.Payload...)}
		d.mu.order = append(d.mu.order, r.Header.ID)
	}
	return err
}

func (d *fakeDisk) Get(ctx context.Context, id block.ID, dst func(int) []byte) (block.Header, error) {
	d.mu.Lock()
	d.mu.gets++
	d.mu.Unlock()
	if d.onGet != nil {
		if h, err, done := d.onGet(ctx, d, id, dst); done {
			return h, err
		}
	}
	r, ok := d.record(id)
	if !ok {
		return block.Header{}, kvstore.ErrNotFound
	}
	return give(r, dst)
}

// give answers a Get with a record.
func give(r kvstore.Record, dst func(int) []byte) (block.Header, error) {
	b := dst(len(r.Payload))
	if b == nil {
		return block.Header{}, context.Canceled // any error but ErrNotFound
	}
	copy(b, r.Payload)
	return r.Header, nil
}

func (d *fakeDisk) record(id block.ID) (kvstore.Record, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.mu.held[id]
	return r, ok
}

func (d *fakeDisk) Walk(fn func(block.Header, int64) bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.mu.held {
		h := r.Header
		h.Tokens = nil
		if !fn(h, int64(len(r.Payload))) {
			break
		}
	}
	return nil
}

func (d *fakeDisk) Forget(id block.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.held, id)
	d.mu.forgot = append(d.mu.forgot, id)
}

func (d *fakeDisk) Touch(ids []block.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		d.mu.touched[id]++
	}
}

func (d *fakeDisk) Stats() kvstore.DiskStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := kvstore.DiskStats{Budget: d.budget, Blocks: len(d.mu.held)}
	for _, r := range d.mu.held {
		s.Bytes += int64(len(r.Payload))
	}
	return s
}

func (d *fakeDisk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.isClosed = true
	return nil
}

func (d *fakeDisk) blocks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.mu.held)
}
