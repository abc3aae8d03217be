//go:build fabric && linux && cgo

package fabric

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const testBytes = 32 << 20

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustRead(t testing.TB, p *Peer, ops ...Op) {
	t.Helper()
	if err := p.Read(within(t, 20*time.Second), ops); err != nil {
		t.Fatal(err)
	}
	checkOps(t, ops)
}

func TestReadsAreWhatTheHolderHas(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		r := newRandom(t)
		h := startHolder(t, provider, testBytes+4096)
		e := openEndpoint(t, provider, testBytes)
		if info := e.Info(); info.Provider != provider || info.RDMA || info.Library == "" || info.Protocol != e.Local().Protocol {
			t.Errorf("the endpoint says %+v", info)
		}
		p := connect(t, e, h.local)
		mustRead(t, p, Op{Remote: 4096, Local: e.region}) // all of it
		for range 20 {
			clear(e.region)
			mustRead(t, p, randomOps(r, e.region, h.bytes)...)
		}
		mustRead(t, p)
		mustRead(t, p, Op{Remote: uint64(h.bytes)}, Op{Remote: uint64(h.bytes) - 1, Local: e.region[testBytes-1:]})
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Read(t.Context(), []Op{{Local: e.region[:1]}}); !errors.Is(err, ErrClosed) {
			t.Errorf("a read after Close: %v", err)
		}
	})
}

// Bytes beside the ranges stay as they are.
func TestReadsTouchNothingElse(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		h := startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, testBytes)
		p := connect(t, e, h.local)
		for i := range e.region {
			e.region[i] = 0x5a
		}
		ops := []Op{{Remote: 77, Local: e.region[4099 : 4099+3*PieceBytes+13]}, {Remote: 9 << 20, Local: e.region[20<<20 : 20<<20+1]}}
		mustRead(t, p, ops...)
		for _, op := range ops {
			for i := range op.Local {
				op.Local[i] = 0x5a
			}
		}
		checkPattern(t, e.region, 0x5a)
	})
}

func checkPattern(t testing.TB, b []byte, want byte) {
	t.Helper()
	if n := bytes.Count(b, []byte{want}); n != len(b) {
		t.Errorf("%d of %d bytes have changed", len(b)-n, len(b))
	}
}

func TestBounds(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		h := startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, 2*testBytes)
		p := connect(t, e, h.local)
		heap := make([]byte, 4096)
		// A slice that begins within the region and ends beyond cannot be made from
		// it; one of another mapping may lie right beside it.
		other, err := mapRegion(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(other) })
		for name, op := range map[string]Op{
			"one byte beyond the peer's region":  {Remote: testBytes - 99, Local: e.region[:100]},
			"behind the peer's region":           {Remote: testBytes, Local: e.region[:1]},
			"an offset that wraps around":        {Remote: 1<<64 - 50, Local: e.region[:100]},
			"more than the peer has":             {Local: e.region},
			"memory of the heap":                 {Local: heap},
			"memory of another mapping":          {Local: other},
			"an empty range far beyond the peer": {Remote: 1 << 63},
		} {
			if err := p.Read(t.Context(), []Op{{Local: e.region[:1]}, op}); !errors.Is(err, ErrBounds) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := p.Read(t.Context(), make([]Op, OpsMax+1)); !errors.Is(err, ErrBounds) {
			t.Errorf("too many ranges: %v", err)
		}
		checkPattern(t, e.region, 0)
		mustRead(t, p, Op{Remote: testBytes - 100, Local: e.region[:100]})
	})
}

// A wrong key fails, and costs neither later reads from the same holder nor those from
// another.
func TestWrongKey(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		if !checksKeys(provider) {
			t.Skip("this provider does not check keys")
		}
		h, other := startHolder(t, provider, testBytes), startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, testBytes)
		wrong := h.local
		wrong.Key ^= 1
		bad, good, third := connect(t, e, wrong), connect(t, e, h.local), connect(t, e, other.local)
		for range 3 {
			start := time.Now()
			err := bad.Read(within(t, 10*time.Second), []Op{{Local: e.region}})
			var failed *Error
			if !errors.As(err, &failed) || failed.Text == "" {
				t.Fatalf("read with a wrong key: %v", err)
			}
			t.Logf("after %v: %v", time.Since(start).Round(time.Millisecond), err)
			clear(e.region)
			mustRead(t, good, Op{Local: e.region[:testBytes/2]})
			mustRead(t, third, Op{Local: e.region[testBytes/2:]})
		}
	})
}

func TestRotate(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		h := startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, testBytes)
		p := connect(t, e, h.local)
		op := Op{Local: e.region[:8<<20]}
		mustRead(t, p, op)
		h.command(t, "rotate")
		rotated := h.readLocal(t)
		if rotated.Key == h.local.Key {
			t.Errorf("the key is the same")
		}
		if bytes.Equal(rotated.Name, h.local.Name) {
			t.Errorf("the address is the same")
		}
		if checksKeys(provider) {
			if err := p.Read(within(t, 10*time.Second), []Op{op}); err == nil {
				t.Error("the old key still reads")
			}
		}
		mustRead(t, connect(t, e, rotated), op)
	})
}

// Rotating again and again under reads lets no wrong byte through and hangs nobody.
func TestRotateUnderReads(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		h := startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, testBytes)
		e.connectTime = 100 * time.Millisecond
		for range 30 {
			done := make(chan error, 1)
			p := connect(t, e, h.local)
			op := Op{Local: e.region}
			clear(e.region)
			go func() { done <- p.Read(within(t, 20*time.Second), []Op{op}) }()
			h.command(t, "rotate")
			h.local = h.readLocal(t)
			if err := <-done; err == nil {
				checkOps(t, []Op{op})
			} else if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("neither read nor failed: %v", err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		e.connectTime = ConnectTimeMax
		mustRead(t, connect(t, e, h.local), Op{Local: e.region})
	})
}

// readUntil reads all of the holder's region again and again until that fails, and
// tells begun when the first read is done or has failed.
func readUntil(ctx context.Context, p *Peer, ops []Op, begun func()) error {
	once := sync.OnceFunc(begun)
	defer once()
	for {
		if err := p.Read(ctx, ops); err != nil {
			return err
		}
		once()
	}
}

func TestKilledHolder(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		h, other := startHolder(t, provider, testBytes), startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, 2*testBytes)
		p, q := connect(t, e, h.local), connect(t, e, other.local)
		mine, theirs := e.region[:testBytes], e.region[testBytes:]
		begun, done := make(chan struct{}), make(chan error, 1)
		ctx := within(t, 10*time.Second)
		go func() { done <- readUntil(ctx, p, []Op{{Local: mine}}, func() { close(begun) }) }()
		<-begun
		mustRead(t, q, Op{Local: theirs})
		start := time.Now()
		h.signal(t, syscall.SIGKILL)
		err := <-done
		t.Logf("after %v: %v", time.Since(start).Round(time.Millisecond), err)
		if provider == "shm" && errors.Is(err, ErrUnfenced) {
			t.Skip("the holder died within a lock that it shares with us: no provider but shm has any")
		}
		if provider != "shm" && errors.Is(err, context.DeadlineExceeded) {
			t.Error("only the deadline ended it")
		}
		h.cmd.Wait()
		for i := range mine {
			mine[i] = 0x5a
		}
		for range 5 {
			mustRead(t, q, Op{Local: theirs})
		}
		checkPattern(t, mine, 0x5a)
		start = time.Now()
		e.connectTime = 200 * time.Millisecond
		err = p.Read(within(t, 10*time.Second), []Op{{Local: mine}})
		if took := time.Since(start); err == nil || took > 5*time.Second {
			t.Errorf("a dead process: %v after %v", err, took)
		}
		if provider != "shm" && !errors.Is(err, ErrUnreachable) {
			t.Errorf("nobody listens: %v", err)
		}
		e.connectTime = ConnectTimeMax
		again := startHolder(t, provider, testBytes)
		mustRead(t, connect(t, e, again.local), Op{Local: mine})
	})
}

// A frozen holder ends a read by its deadline. When it is resumed, and has answered
// others since, nothing of what was asked of it has come to the memory of that read.
func TestFrozenHolder(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		for round := range 5 {
			h := startHolder(t, provider, testBytes)
			e := openEndpoint(t, provider, 2*testBytes)
			mine, later := e.region[:testBytes], e.region[testBytes:]
			p := connect(t, e, h.local)
			begun, done := make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			go func() { done <- readUntil(ctx, p, []Op{{Local: mine}}, func() { close(begun) }) }()
			<-begun
			h.signal(t, syscall.SIGSTOP)
			start := time.Now()
			err := <-done
			took := time.Since(start)
			cancel()
			if provider == "shm" && errors.Is(err, ErrUnfenced) {
				h.signal(t, syscall.SIGCONT)
				t.Skip("the holder stopped within a lock that it shares with us: no provider but shm has any")
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
			if took > 1500*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			for i := range mine {
				mine[i] = 0x5a
			}
			h.signal(t, syscall.SIGCONT)
			for range 5 {
				mustRead(t, p, Op{Local: later})
			}
			checkPattern(t, mine, 0x5a)
			if round == 0 {
				t.Logf("%v", err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Without the fence the pattern of the test above would be broken: it can fail.
func TestFrozenHolderWritesLateWithoutFence(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		if provider == "shm" {
			t.Skip("reads over shm need no help of the holder, so none is ever late")
		}
		h := startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, testBytes)
		p := connect(t, e, h.local)
		mustRead(t, p, Op{Local: e.region[:1]}) // the connection is there
		h.signal(t, syscall.SIGSTOP)
		pieces, err := p.cut([]Op{{Local: e.region}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.begin(); err != nil {
			t.Fatal(err)
		}
		if done, err := p.step(pieces); done || err != nil {
			t.Fatalf("%v, %v", done, err)
		}
		for i := range e.region {
			e.region[i] = 0x5a
		}
		h.signal(t, syscall.SIGCONT)
		ctx := within(t, 10*time.Second)
		for done := false; !done && ctx.Err() == nil; {
			if done, err = p.step(pieces); err != nil {
				t.Fatal(err)
			}
		}
		if bytes.Count(e.region, []byte{0x5a}) == len(e.region) {
			t.Error("nothing came late")
		}
	})
}

// A call of the library that does not end is left behind, and the error says so.
func TestCallThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hang := make(chan struct{})
	defer close(hang)
	if err := inTime(ctx, func() error { <-hang; return nil }); !errors.Is(err, ErrUnfenced) {
		t.Errorf("a call that hangs: %v", err)
	}
	why := errors.New("why")
	if err := inTime(ctx, func() error { return why }); err != why {
		t.Errorf("a call that ends: %v", err)
	}
}

func TestCancelAndLongestTime(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		if provider == "shm" {
			t.Skip("reads over shm need no help of the holder, so none waits")
		}
		h := startHolder(t, provider, testBytes)
		e := openEndpoint(t, provider, testBytes)
		p := connect(t, e, h.local)
		h.signal(t, syscall.SIGSTOP)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
		start := time.Now()
		if err := p.Read(ctx, []Op{{Local: e.region}}); !errors.Is(err, why) {
			t.Errorf("cancelled: %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the cancel took %v", took)
		}
		e.readTime = 100 * time.Millisecond
		if err := p.Read(t.Context(), []Op{{Local: e.region}}); !errors.Is(err, ErrTime) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the longest time: %v", err)
		}
		e.readTime = ReadTimeMax
		// One read waits for another, and gives up by its own deadline.
		first := make(chan error, 1)
		go func() { first <- p.Read(within(t, time.Second), []Op{{Local: e.region[:1]}}) }()
		for len(p.turn) == 0 {
			<-time.After(time.Millisecond)
		}
		if err := p.Read(within(t, 50*time.Millisecond), []Op{{Local: e.region[1:2]}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in the queue: %v", err)
		}
		<-first
		h.signal(t, syscall.SIGCONT)
		mustRead(t, p, Op{Local: e.region})
	})
}

// Two holders and several readers of each at once, who all get what they asked for,
// while this process is read from, too.
func TestConcurrentReads(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		r := newRandom(t)
		const readers, share = 4, testBytes / 4
		e := openEndpoint(t, provider, testBytes)
		source := openEndpoint(t, provider, share)
		fill(source.region)
		holders := []Local{startHolder(t, provider, share).local, startHolder(t, provider, share).local, source.Local()}
		var peers []*Peer
		for _, l := range holders {
			peers = append(peers, connect(t, e, l))
		}
		var running sync.WaitGroup
		for i := range readers {
			own := e.region[i*share : (i+1)*share]
			var lists [][]Op
			for range 20 {
				lists = append(lists, randomOps(r, own, share))
			}
			running.Go(func() {
				for n, ops := range lists {
					if err := peers[(i+n)%len(peers)].Read(within(t, 20*time.Second), ops); err != nil {
						t.Error(err)
						return
					}
					checkOps(t, ops)
				}
			})
		}
		running.Wait()
	})
}

func TestCloseWhileReading(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		h := startHolder(t, provider, testBytes)
		for _, closePeer := range []bool{true, false} {
			region, err := mapRegion(testBytes)
			if err != nil {
				t.Fatal(err)
			}
			e, err := Open(Options{Provider: provider, Address: "127.0.0.1", Region: region})
			if err != nil {
				t.Fatal(err)
			}
			p := connect(t, e, h.local)
			begun, done := make(chan struct{}), make(chan error, 2)
			go func() {
				done <- readUntil(t.Context(), p, []Op{{Local: region[:testBytes/2]}}, func() { close(begun) })
			}()
			go func() { done <- readUntil(t.Context(), p, []Op{{Local: region[testBytes/2:]}}, func() {}) }()
			<-begun
			if closePeer {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			// Nobody may write there any more: if somebody does, the process dies.
			if err := syscall.Munmap(region); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := <-done; !errors.Is(err, ErrClosed) {
					t.Errorf("a read that was closed: %v", err)
				}
			}
			if _, err := e.Connect(h.local); !errors.Is(err, ErrClosed) {
				t.Errorf("Connect: %v", err)
			}
			if _, err := e.Rotate(); !errors.Is(err, ErrClosed) {
				t.Errorf("Rotate: %v", err)
			}
			if err := errors.Join(e.Close(), p.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

// entries counts what is in a folder of /proc/self.
func entries(t testing.TB, folder string) int {
	t.Helper()
	found, err := os.ReadDir(filepath.Join("/proc/self", folder))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestNothingLeaks(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		h := startHolder(t, provider, 1<<20)
		region, err := mapRegion(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Munmap(region)
		cycle := func() {
			e, err := Open(Options{Provider: provider, Address: "127.0.0.1", Region: region})
			if err != nil {
				t.Fatal(err)
			}
			mustRead(t, connect(t, e, h.local), Op{Local: region[:1000]})
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			cycle()
		}
		files, threads := entries(t, "fd"), entries(t, "task")
		for range 200 {
			cycle()
		}
		// Go keeps threads for later and makes a few as it needs them.
		if f, n := entries(t, "fd"), entries(t, "task"); f > files || n > threads+8 {
			t.Errorf("from %d descriptors and %d threads to %d and %d", files, threads, f, n)
		} else {
			t.Logf("from %d descriptors and %d threads to %d and %d", files, threads, f, n)
		}
	})
}

func TestMissingLibrary(t *testing.T) {
	testProviders(t)
	defer func(name string) { loader.name = name }(loader.name)
	loader.name = "libfabric-that-is-not-there.so.1"
	_, err := Open(Options{Provider: "tcp", Region: make([]byte, 1)})
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), loader.name) || !strings.Contains(err.Error(), "install libfabric1") {
		t.Errorf("Open: %v", err)
	}
	if _, err := Providers(); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("Providers: %v", err)
	}
	loader.name = "libm.so.6" // a library, but another
	if _, err := Open(Options{Provider: "tcp", Region: make([]byte, 1)}); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "fi_getinfo") {
		t.Errorf("Open: %v", err)
	}
}

func TestProvidersOfThisMachine(t *testing.T) {
	testProviders(t)
	infos, err := Providers()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		t.Logf("%+v", info)
	}
}

func TestProviderIsTheOneAskedFor(t *testing.T) {
	names := testProviders(t)
	region, err := mapRegion(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(region)
	for _, name := range append([]string{"rxm", "ofi_rxm", "no-such-provider", "tcp;ofi_rxd", "net;shm", "tcp", "net"}, rdmaProviders...) {
		e, err := Open(Options{Provider: name, Region: region})
		if err == nil {
			if e.Info().Provider != name {
				t.Errorf("asked for %s, got %s", name, e.Info().Provider)
			}
			e.Close()
		} else if !errors.Is(err, ErrNoProvider) {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Logf("%v", err)
		}
	}
	if e, err := Open(Options{Region: region}); err == nil {
		if !e.Info().RDMA {
			t.Errorf("chose %s by itself", e.Info().Provider)
		}
		e.Close()
	} else {
		t.Logf("%v", err)
	}
	for _, o := range []Options{{}, {Provider: "a\x00b", Region: region}, {Address: strings.Repeat("1", 100), Region: region}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v passes", o)
		}
	}
	if _, err := Open(Options{Provider: names[0], Address: "203.0.113.7", Region: region}); err == nil && names[0] != "shm" {
		t.Error("an address of another machine passes")
	} else {
		t.Logf("%v", err)
	}
}

func TestConnectRefuses(t *testing.T) {
	forProviders(t, func(t *testing.T, provider string) {
		e := openEndpoint(t, provider, 4096)
		for name, change := range map[string]func(*Local){
			"another provider": func(l *Local) { l.Provider = "verbs;ofi_rxm" },
			"another protocol": func(l *Local) { l.Protocol = "sock-tcp" },
			"another format":   func(l *Local) { l.Format++ },
		} {
			l := e.Local()
			change(&l)
			if _, err := e.Connect(l); !errors.Is(err, ErrMismatch) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := e.Connect(Local{}); err == nil {
			t.Error("an empty Local passes")
		}
		var peers []*Peer
		for range PeersMax {
			peers = append(peers, connect(t, e, e.Local()))
		}
		if _, err := e.Connect(e.Local()); !errors.Is(err, ErrTooManyPeers) {
			t.Errorf("one more than PeersMax: %v", err)
		}
		peers[3].Close()
		connect(t, e, e.Local())
		// A name that is none does no harm.
		l := e.Local()
		l.Name = bytes.Repeat([]byte{0xff}, nameBytesMax)
		peers[4].Close()
		if err := connect(t, e, l).Read(within(t, 200*time.Millisecond), []Op{{Local: e.region[:1]}}); err == nil {
			t.Error("a read from nowhere")
		} else {
			t.Logf("%v", err)
		}
	})
}

// Providers bring handlers of signals; Go's stay in force.
func TestSignalHandlersStay(t *testing.T) {
	testProviders(t)
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGTERM)
	defer signal.Stop(got)
	before := handlers()
	forProviders(t, func(t *testing.T, provider string) {
		e := openEndpoint(t, provider, 4096)
		mustReadSelf(t, e)
		if handlers() != before {
			t.Error("handlers of signals have changed")
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-got:
		case <-within(t, 5*time.Second).Done():
			t.Error("a signal was lost")
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a nil pointer was read")
				}
			}()
			var nothing *Options
			_ = nothing.Provider
		}()
	})
}

// mustReadSelf reads from the endpoint's own region.
func mustReadSelf(t testing.TB, e *Endpoint) {
	t.Helper()
	half := len(e.region) / 2
	fill(e.region[:half])
	mustRead(t, connect(t, e, e.Local()), Op{Local: e.region[half : 2*half]})
}

func TestProvidersThatCrash(t *testing.T) {
	const before, fixed = 1<<16 | 17, 1<<16 | 18
	for _, tt := range []struct {
		provider string
		version  uint32
		want     bool
	}{
		{"tcp;ofi_rxm", before, true},
		{"net;ofi_rxm", before, true},
		{"tcp;ofi_rxm", fixed, false},
		{"tcp;ofi_rxm", 2 << 16, false},
		{"verbs;ofi_rxm", before, false},
		{"net", before, false},
	} {
		if got := crashes(tt.provider, tt.version); got != tt.want {
			t.Errorf("%s of %#x: %v", tt.provider, tt.version, got)
		}
	}
	testProviders(t)
	infos, err := Providers()
	if err != nil {
		t.Fatal(err)
	}
	if infos[0].Library != "1.17" {
		t.Skipf("libfabric is %s; 1.17 is the last that crashes", infos[0].Library)
	}
	if _, err := Open(Options{Provider: "tcp;ofi_rxm", Region: make([]byte, 1)}); !errors.Is(err, ErrNoProvider) || !strings.Contains(err.Error(), `use "net"`) {
		t.Errorf("Open: %v", err)
	}
}

func TestMemlockSentence(t *testing.T) {
	got := memlockSentence(4<<30, 8<<20)
	for _, want := range []string{"8192 MiB", "8192 KiB", "LimitMEMLOCK=infinity", "ulimit -l unlimited"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := memlockRemedy(&Error{Call: "fi_mr_reg", Code: codeNoMemory}, "tcp", 4<<30); got != "" {
		t.Errorf("a provider that pins nothing: %q", got)
	}
}
