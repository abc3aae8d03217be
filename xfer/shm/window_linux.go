package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Machine names what two processes must have in common to share memory: the running
// system, the network namespace (in which the names of sockets are) and the user.
// Empty: that cannot be told.
func Machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d", strings.TrimSpace(string(boot)), network, os.Getuid())
}

// Window is memory that two processes have mapped.
type Window struct {
	conn   *net.UnixConn
	places *places
	lost   chan struct{} // closed when either side has ended it
	watch  sync.WaitGroup

	mu  sync.RWMutex // held for reading by those who work in mem
	mem []byte       // nil when it is unmapped
}

// newWindow maps the memory of a file, which stays the caller's.
func newWindow(conn *net.UnixConn, file int, bytes int) (*Window, error) {
	mem, err := unix.Mmap(file, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", bytes, err)
	}
	w := &Window{conn: conn, places: newPlaces(bytes), lost: make(chan struct{}), mem: mem}
	conn.SetDeadline(time.Time{})
	w.watch.Go(func() {
		var b [1]byte
		conn.Read(b[:]) // nothing comes but the end
		close(w.lost)
		w.places.end()
	})
	return w, nil
}

// Bytes is its size.
func (w *Window) Bytes() int { return w.places.size }

// Lost is closed when the window has ended, because of either side.
func (w *Window) Lost() <-chan struct{} { return w.lost }

// Alloc waits for n bytes of the window until ctx ends: for the side that writes.
// Errors: ErrTooLarge, ErrClosed, the cause of ctx's end.
func (w *Window) Alloc(ctx context.Context, n int) (at int, err error) {
	return w.places.alloc(ctx, n)
}

// Free gives back what Alloc gave.
func (w *Window) Free(at int) { w.places.free(at) }

// Write copies into the window.
func (w *Window) Write(at int, from []byte) error {
	return w.at(uint64(at), len(from), func(mem []byte) { copy(mem, from) })
}

// Read copies out of the window.
func (w *Window) Read(at uint64, into []byte) error {
	return w.at(at, len(into), func(mem []byte) { copy(into, mem) })
}

func (w *Window) at(at uint64, n int, do func(mem []byte)) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	select {
	case <-w.lost:
		return ErrClosed
	default:
	}
	switch {
	case w.mem == nil:
		return ErrClosed
	case n > len(w.mem) || at > uint64(len(w.mem)-n):
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrBounds, n, at, len(w.mem))
	}
	do(w.mem[at : at+uint64(n)])
	return nil
}

// Close ends the window and waits for those who work in it. A second call does
// nothing.
func (w *Window) Close() error {
	w.conn.Close()
	w.watch.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mem == nil {
		return nil
	}
	mem := w.mem
	w.mem = nil
	return unix.Munmap(mem)
}

// Offer makes a window and gives it to the listener of that name.
func Offer(ctx context.Context, name string, t Token, bytes int) (*Window, error) {
	if bytes < align || bytes > BytesMax || bytes%align != 0 {
		return nil, fmt.Errorf("shared memory of %d bytes; allowed: multiples of %d up to %d", bytes, align, BytesMax)
	}
	file, err := unix.MemfdCreate("tandem-kv", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	defer unix.Close(file)
	if err := unix.Ftruncate(file, int64(bytes)); err != nil {
		return nil, fmt.Errorf("make shared memory of %d bytes: %w", bytes, err)
	}
	if _, err := unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal shared memory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, HelloTime)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", "@"+name)
	if err != nil {
		return nil, fmt.Errorf("reach the other process for shared memory: %w", err)
	}
	conn := c.(*net.UnixConn)
	w, err := offer(ctx, conn, t, file, bytes)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return w, nil
}

// seals keep both sides from changing the size.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func offer(ctx context.Context, conn *net.UnixConn, t Token, file, bytes int) (*Window, error) {
	if err := sameUser(conn); err != nil {
		return nil, err
	}
	by, _ := ctx.Deadline()
	conn.SetDeadline(by)
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, _, err := conn.WriteMsgUnix(t[:], unix.UnixRights(file), nil); err != nil {
		return nil, fmt.Errorf("give shared memory: %w", err)
	}
	var answer [1]byte
	if n, err := conn.Read(answer[:]); n != 1 || answer[0] != taken {
		return nil, errors.Join(ErrRefused, err)
	}
	return newWindow(conn, file, bytes)
}

// taken is the answer to a window that was mapped.
const taken = 'T'

// sameUser refuses processes of others.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	switch {
	case credErr != nil:
		return fmt.Errorf("who is at the other end: %w", credErr)
	case int(cred.Uid) != os.Getuid():
		return fmt.Errorf("%w: the process at the other end is of user %d, this one of %d", ErrRefused, cred.Uid, os.Getuid())
	}
	return nil
}
