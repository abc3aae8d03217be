package shm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Listener takes windows that other processes offer.
type Listener struct {
	name   string
	socket *net.UnixListener
	hellos chan struct{} // one is put in for each connection without a window
	all    sync.WaitGroup
	ctx    context.Context
	end    context.CancelFunc

	mu     sync.Mutex
	tokens map[Token]expected
}

// expected is who may show a token, and until when.
type expected struct {
	take  func(*Window)
	until time.Time
}

// Listen makes a socket whose name nobody can guess.
func Listen() (*Listener, error) {
	random := make([]byte, 16)
	rand.Read(random) // never fails
	l := &Listener{name: "tandem-" + hex.EncodeToString(random), hellos: make(chan struct{}, hellosMax), tokens: map[Token]expected{}}
	var err error
	if l.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: "@" + l.name, Net: "unix"}); err != nil {
		return nil, fmt.Errorf("listen for shared memory: %w", err)
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.all.Go(l.accept)
	return l, nil
}

// Name is where Offer finds it.
func (l *Listener) Name() string { return l.name }

// Expect makes a token. Within HelloTime somebody may give one window for it, which
// take gets, and owns. The zero Token: too many are out.
func (l *Listener) Expect(take func(*Window)) Token {
	var t Token
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for t, e := range l.tokens {
		if now.After(e.until) {
			delete(l.tokens, t)
		}
	}
	if len(l.tokens) >= hellosMax {
		return t
	}
	rand.Read(t[:])
	l.tokens[t] = expected{take, now.Add(HelloTime)}
	return t
}

// Close ends the socket. Windows live on.
func (l *Listener) Close() error {
	l.end()
	err := l.socket.Close()
	l.all.Wait()
	return err
}

func (l *Listener) accept() {
	for {
		conn, err := l.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files: they are closed by others
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-l.ctx.Done():
				return
			}
		}
		select {
		case l.hellos <- struct{}{}:
			l.all.Go(func() {
				defer func() { <-l.hellos }()
				if err := l.receive(conn); err != nil {
					conn.Close()
				}
			})
		default:
			conn.Close()
		}
	}
}

// receive makes a window of a connection.
func (l *Listener) receive(conn *net.UnixConn) error {
	if err := sameUser(conn); err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(HelloTime))
	defer context.AfterFunc(l.ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	var t Token
	rights := make([]byte, unix.CmsgSpace(2*4)) // one more than is allowed
	n, rightsBytes, flags, _, err := conn.ReadMsgUnix(t[:], rights)
	if err != nil {
		return err
	}
	files, err := parseRights(rights[:rightsBytes])
	defer func() {
		for _, f := range files {
			unix.Close(f)
		}
	}()
	l.mu.Lock()
	e, known := l.tokens[t]
	delete(l.tokens, t)
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case n != len(t) || !known || time.Now().After(e.until):
		return fmt.Errorf("%w: it shows no token that holds", ErrRefused)
	case len(files) != 1 || flags&unix.MSG_CTRUNC != 0:
		return fmt.Errorf("%w: it gives %d files", ErrRefused, len(files))
	}
	bytes, err := sealed(files[0])
	if err != nil {
		return err
	}
	if _, err := conn.Write([]byte{taken}); err != nil {
		return err
	}
	w, err := newWindow(conn, files[0], bytes)
	if err != nil {
		return err
	}
	e.take(w)
	return nil
}

func parseRights(b []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, err
	}
	var files []int
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, f := range some {
			unix.CloseOnExec(f)
		}
		files = append(files, some...)
	}
	return files, nil
}

// sealed is the size of memory that nobody can make smaller.
func sealed(file int) (int, error) {
	has, err := unix.FcntlInt(uintptr(file), unix.F_GET_SEALS, 0)
	if err != nil || has&unix.F_SEAL_SHRINK == 0 {
		return 0, fmt.Errorf("%w: it is not sealed", ErrRefused)
	}
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return 0, err
	}
	if st.Size < align || st.Size > BytesMax || st.Size%align != 0 {
		return 0, fmt.Errorf("%w: it has %d bytes; allowed: multiples of %d up to %d", ErrRefused, st.Size, align, BytesMax)
	}
	return int(st.Size), nil
}
