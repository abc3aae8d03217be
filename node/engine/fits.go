package engine

// Capacity is the memory that all models of the pool may take together, in bytes.
func (p *Pool) Capacity() int64 { return p.capacity() }
