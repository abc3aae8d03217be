package llama

import "os"

// bell lets a goroutine wait for a thread of C as it waits for a network peer. A
// goroutine that waits in a call of C keeps a processor of the Go scheduler; its
// monitor thread then wakes up some 20 times a step to look after it, and each time
// it takes a core from one compute thread, for which all others wait.
type bell struct {
	r, w *os.File // a pipe; C writes one byte to ring
	buf  [1]byte
}

func newBell() (*bell, error) {
	r, w, err := os.Pipe()
	return &bell{r: r, w: w}, err
}

// fd is what C writes to, valid until close.
func (b *bell) fd() uintptr { return b.w.Fd() }

// wait waits for one ring.
func (b *bell) wait() {
	if _, err := b.r.Read(b.buf[:]); err != nil {
		panic("llama: waiting for a computation, which goes on: " + err.Error())
	}
}

func (b *bell) close() {
	b.r.Close()
	b.w.Close()
}
