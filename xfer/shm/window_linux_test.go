package shm

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listen(t *testing.T) *Listener {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair is both sides of a window.
func pair(t *testing.T, size int) (reader, writer *Window) {
	t.Helper()
	l := listen(t)
	came := make(chan *Window, 1)
	reader, err := Offer(t.Context(), l.Name(), l.Expect(func(w *Window) { came <- w }), size)
	if err != nil {
		t.Fatal(err)
	}
	writer = <-came
	t.Cleanup(func() { reader.Close(); writer.Close() })
	return reader, writer
}

func TestWindow(t *testing.T) {
	reader, writer := pair(t, 1<<20)
	want := bytes.Repeat([]byte("kv"), 1000)
	at, err := writer.Alloc(t.Context(), len(want))
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Write(at, want); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := reader.Read(uint64(at), got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read other bytes, or %v", err)
	}
	writer.Free(at)
	for _, at := range []uint64{1<<20 - 1, 1 << 20, 1 << 40, ^uint64(0)} {
		if err := reader.Read(at, got); !errors.Is(err, ErrBounds) {
			t.Errorf("a read at %d: %v", at, err)
		}
	}
}

// When one side ends, the other one notices, and its memory stays readable for those
// who are in it.
func TestWindowEnds(t *testing.T) {
	for name, of := range map[string]func(reader, writer *Window) (ends, other *Window){
		"reader": func(r, w *Window) (*Window, *Window) { return r, w },
		"writer": func(r, w *Window) (*Window, *Window) { return w, r },
	} {
		t.Run(name, func(t *testing.T) {
			ends, other := of(pair(t, 1<<16))
			if _, err := other.Alloc(t.Context(), 1<<16); err != nil {
				t.Fatal(err)
			}
			waits := make(chan error)
			go func() {
				_, err := other.Alloc(context.Background(), 1)
				waits <- err
			}()
			if err := ends.Close(); err != nil {
				t.Fatal(err)
			}
			<-other.Lost()
			if err := <-waits; !errors.Is(err, ErrClosed) {
				t.Errorf("who waits for room gets %v", err)
			}
			if err := other.Read(0, make([]byte, 1)); !errors.Is(err, ErrClosed) {
				t.Errorf("a read after the end: %v", err)
			}
		})
	}
}

// A token holds for one window; nothing but sealed memory of a sane size is mapped.
func TestListenerRefuses(t *testing.T) {
	l := listen(t)
	taken := make(chan *Window, 8)
	used := l.Expect(func(w *Window) { taken <- w })
	first, err := Offer(t.Context(), l.Name(), used, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	defer (<-taken).Close()
	for name, token := range map[string]Token{"used": used, "unknown": {1, 2, 3}, "zero": {}} {
		if _, err := Offer(t.Context(), l.Name(), token, 1<<16); !errors.Is(err, ErrRefused) {
			t.Errorf("a token that is %s: %v", name, err)
		}
	}
	if _, err := Offer(t.Context(), l.Name(), l.Expect(func(*Window) {}), BytesMax+align); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("too large: %v", err)
	}
	memory := func(size int64, seals int) int {
		file, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(file) })
		if err := unix.Ftruncate(file, size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return file
	}
	plain, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, files := range map[string][]int{
		"none":       {},
		"not sealed": {memory(1<<16, 0)},
		"empty":      {memory(0, unix.F_SEAL_SHRINK)},
		"too large":  {memory(BytesMax+align, unix.F_SEAL_SHRINK)},
		"odd size":   {memory(100, unix.F_SEAL_SHRINK)},
		"a file":     {int(plain.Fd())},
		"two":        {memory(1<<16, unix.F_SEAL_SHRINK), memory(1<<16, unix.F_SEAL_SHRINK)},
	} {
		token := l.Expect(func(*Window) { t.Errorf("%s: it was taken", name) })
		c, err := net.Dial("unix", "@"+l.Name())
		if err != nil {
			t.Fatal(err)
		}
		conn := c.(*net.UnixConn)
		var rights []byte
		if len(files) > 0 {
			rights = unix.UnixRights(files...)
		}
		if _, _, err := conn.WriteMsgUnix(token[:], rights, nil); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: answered with %d bytes, %v", name, n, err)
		}
		conn.Close()
	}
}

// A connection that says nothing does not keep the listener from closing.
func TestListenerCloses(t *testing.T) {
	l := listen(t)
	conn, err := net.Dial("unix", "@"+l.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n, _ := conn.Read(make([]byte, 1)); n != 0 {
		t.Error("it answered")
	}
}

func BenchmarkWindow(b *testing.B) {
	l, err := Listen()
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	came := make(chan *Window, 1)
	reader, err := Offer(b.Context(), l.Name(), l.Expect(func(w *Window) { came <- w }), 64<<20)
	if err != nil {
		b.Fatal(err)
	}
	defer reader.Close()
	writer := <-came
	defer writer.Close()
	block := make([]byte, 1440<<10)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		at, err := writer.Alloc(b.Context(), len(block))
		if err != nil {
			b.Fatal(err)
		}
		if err := writer.Write(at, block); err != nil {
			b.Fatal(err)
		}
		if err := reader.Read(uint64(at), block); err != nil {
			b.Fatal(err)
		}
		writer.Free(at)
	}
}
