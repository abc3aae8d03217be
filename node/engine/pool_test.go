package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

const (
	loadTime = 3 * time.Second
	gib      = 1 << 30
)

// garage is a pool of fakes in virtual time. Its log tells loads and unloads.
type garage struct {
	*testing.T
	pool  *engine.Pool
	fakes []*enginetest.Backend
	mu    sync.Mutex
	log   []string
	now   map[string]int // engines that exist, by name
	most  int            // that existed at the same time

	unloadTime time.Duration
}

var errBroken = errors.New("the file is broken")

// newGarage makes a pool whose loads take loadTime. A model whose name begins with
// a digit takes as many GiB, others 1; "broken" cannot be loaded.
func newGarage(t *testing.T, c engine.PoolConfig) *garage {
	g := &garage{T: t, now: map[string]int{}}
	if c.MemoryBudget == 0 {
		c.MemoryBudget = 8 * gib
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = time.Hour
	}
	c.Load = g.load
	c.Estimate = func(s engine.Spec) (engine.Memory, error) {
		if s.Path == "missing" {
			return engine.Memory{}, errBroken
		}
		size := int64(1)
		if d := s.Name[0]; d >= '0' && d <= '9' {
			size = int64(d - '0')
		}
		return engine.Memory{Weights: size * gib}, nil
	}
	c.Unloaded = func(s engine.Spec, _ engine.Stats) {
		time.Sleep(g.unloadTime)
		g.note("-", s.Name, -1)
	}
	g.pool = engine.NewPool(c)
	return g
}

func (g *garage) load(ctx context.Context, s engine.Spec) (*engine.Engine, error) {
	g.note("+", s.Name, 1)
	select {
	case <-time.After(loadTime):
	case <-ctx.Done():
		g.note("!", s.Name, -1)
		return nil, context.Cause(ctx)
	}
	if s.Name == "broken" {
		g.note("!", s.Name, -1)
		return nil, errBroken
	}
	b := enginetest.New(enginetest.Options{Context: 1 << 20})
	g.mu.Lock()
	g.fakes = append(g.fakes, b)
	g.mu.Unlock()
	return engine.New(b, engine.Config{}), nil
}

func (g *garage) note(sign, name string, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, sign+name)
	g.now[name] += change
	sum := 0
	for _, n := range g.now {
		sum += n
	}
	g.most = max(g.most, sum)
	if g.now[name] > 1 {
		g.Errorf("%s is loaded twice", name)
	}
}

// mostLoaded is the largest number of engines that existed at the same time.
func (g *garage) mostLoaded() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

func (g *garage) expectLog(want string) {
	g.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := strings.Join(g.log, " "); got != want {
		g.Errorf("log %q, want %q", got, want)
	}
}

// acquire leases an engine or fails the test.
func (g *garage) acquire(name string) *engine.Lease {
	g.Helper()
	l, err := g.pool.Acquire(g.Context(), engine.Spec{Name: name})
	if err != nil {
		g.Fatalf("Acquire %s: %v", name, err)
	}
	return l
}

// order notes who got leases, in order.
type order struct {
	mu   sync.Mutex
	list []string
	done sync.WaitGroup
}

// user acquires on a goroutine, holds the lease for a while and releases it.
func (o *order) user(g *garage, ctx context.Context, name string, hold time.Duration) {
	o.done.Go(func() {
		l, err := g.pool.Acquire(ctx, engine.Spec{Name: name})
		o.mu.Lock()
		if err != nil {
			o.list = append(o.list, name+": "+err.Error())
		} else {
			o.list = append(o.list, name)
		}
		o.mu.Unlock()
		if err == nil {
			time.Sleep(hold)
			l.Release(nil)
		}
	})
	synctest.Wait()
}

func (o *order) expect(t *testing.T, want ...string) {
	t.Helper()
	o.done.Wait()
	if !slices.Equal(o.list, want) {
		t.Errorf("served %q, want %q", o.list, want)
	}
}

func (g *garage) close() {
	g.Helper()
	if err := g.pool.Close(g.Context()); err != nil {
		g.Errorf("Close: %v", err)
	}
	for _, b := range g.fakes {
		checkClean(g, b)
	}
}

// inGarage runs a test in virtual time.
func inGarage(t *testing.T, c engine.PoolConfig, test func(g *garage)) {
	synctest.Test(t, func(t *testing.T) {
		g := newGarage(t, c)
		test(g)
		g.close()
	})
}

func TestPoolWaitsForRunningStreams(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 1}, func(g *garage) {
		a := g.acquire("a")
		stream := submit(g, a.Engine(), engine.Request{Tokens: words(g, "x"), MaxTokens: 100})
		next(g, stream)
		var o order
		o.user(g, g.Context(), "b", time.Minute)
		o.user(g, g.Context(), "a", time.Minute) // loaded, but b was first
		o.user(g, g.Context(), "b", time.Minute)
		g.expectLog("+a")
		if text := read(g, stream); len(text) != 99 {
			g.Errorf("the stream on a said %q", text)
		}
		a.Release(nil)
		o.expect(g.T, "b", "a", "b")
		g.expectLog("+a -a +b -b +a -a +b")
		if g.mostLoaded() != 1 {
			g.Errorf("%d loaded at the same time", g.mostLoaded())
		}
	})
}

func TestPoolThreeAtOnce(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 1}, func(g *garage) {
		var o order
		for _, name := range []string{"a", "b", "c", "a", "b", "c"} {
			o.user(g, g.Context(), name, time.Second)
		}
		o.expect(g.T, "a", "b", "c", "a", "b", "c")
		if g.mostLoaded() != 1 {
			g.Errorf("%d loaded at the same time", g.mostLoaded())
		}
	})
}

func TestPoolFirstWaiterLeaves(t *testing.T) {
	gone := errors.New("gone")
	tests := []struct {
		name   string
		others int // who wait for the same model
		log    string
	}{
		{"others wait", 2, "+a"},
		{"nobody waits: the load is finished and kept", 0, "+a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inGarage(t, engine.PoolConfig{MaxLoaded: 1}, func(g *garage) {
				ctx, leave := context.WithCancelCause(g.Context())
				var first, o order
				first.user(g, ctx, "a", 0)
				var want []string
				for range tt.others {
					o.user(g, g.Context(), "a", time.Second)
					want = append(want, "a")
				}
				time.Sleep(loadTime / 2)
				leave(gone)
				first.expect(g.T, "a: gone")
				o.expect(g.T, want...)
				time.Sleep(loadTime)
				begin := time.Now()
				l := g.acquire("a")
				if time.Since(begin) != 0 || l.LoadTime() != 0 {
					g.Errorf("the next one waited %v, of it %v for a load", time.Since(begin), l.LoadTime())
				}
				l.Release(nil)
				g.expectLog(tt.log)
			})
		})
	}
}

// TestPoolWaiterForPlaceLeaves: who made others wait and leaves lets them go on.
func TestPoolWaiterForPlaceLeaves(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 1}, func(g *garage) {
		a := g.acquire("a")
		ctx, leave := context.WithCancel(g.Context())
		var b, o order
		b.user(g, ctx, "b", 0)
		o.user(g, g.Context(), "a", 0)
		if g.pool.Waiting() != 2 {
			g.Errorf("%d wait, want 2", g.pool.Waiting())
		}
		leave()
		b.expect(g.T, "b: context canceled")
		o.expect(g.T, "a")
		a.Release(nil)
		g.expectLog("+a")
	})
}

func TestPoolLoadTime(t *testing.T) {
	inGarage(t, engine.PoolConfig{}, func(g *garage) {
		var o order
		o.user(g, g.Context(), "a", 0)
		time.Sleep(time.Second)
		l := g.acquire("a")
		if l.LoadTime() != loadTime-time.Second {
			g.Errorf("LoadTime %v for one who came after a second", l.LoadTime())
		}
		l.Release(nil)
		l.Release(nil) // does nothing
		o.expect(g.T, "a")
		if m := g.pool.Loaded(); len(m) != 1 || m[0].Leases != 0 {
			g.Errorf("loaded: %+v", m)
		}
	})
}

func TestPoolLoadFails(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 1}, func(g *garage) {
		var o order
		o.user(g, g.Context(), "broken", 0)
		o.user(g, g.Context(), "a", 0)
		o.user(g, g.Context(), "broken", 0)
		o.done.Wait()
		slices.Sort(o.list)
		o.expect(g.T, "a", "broken: the file is broken", "broken: the file is broken")
		if _, err := g.pool.Acquire(g.Context(), engine.Spec{Name: "x", Path: "missing"}); !errors.Is(err, errBroken) {
			g.Errorf("Estimate failed, Acquire says %v", err)
		}
	})
}

func TestPoolMemory(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 5, MemoryBudget: 8 * gib}, func(g *garage) {
		_, err := g.pool.Acquire(g.Context(), engine.Spec{Name: "9 GiB"})
		var refused *engine.NoMemoryError
		if !errors.As(err, &refused) || refused.Have != 8*gib || refused.Need.Total() != 9*gib || !strings.Contains(err.Error(), "9.0 GiB") {
			g.Errorf("9 GiB of 8: %v", err)
		}
		for _, name := range []string{"3a", "2b", "3c"} {
			g.acquire(name).Release(nil)
		}
		g.expectLog("+3a +2b +3c")
		g.acquire("4d").Release(nil) // the two oldest go, one after the other
		g.expectLog("+3a +2b +3c -3a -2b +4d")
		e := g.acquire("1e") // fits
		var o order
		o.user(g, g.Context(), "8f", 0)
		time.Sleep(time.Minute)
		g.expectLog("+3a +2b +3c -3a -2b +4d +1e -3c -4d")
		e.Release(nil)
		o.expect(g.T, "8f")
	})
}

// TestPoolSmallOneDoesNotOvertake: a place that would do for a later caller is kept
// from it while an earlier one waits for a larger place.
func TestPoolSmallOneDoesNotOvertake(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 5, MemoryBudget: 8 * gib}, func(g *garage) {
		a := g.acquire("4a")
		var o order
		o.user(g, g.Context(), "5b", 0)
		o.user(g, g.Context(), "1c", 0)
		time.Sleep(time.Minute)
		g.expectLog("+4a")
		a.Release(nil)
		o.done.Wait()
		if len(g.pool.Loaded()) != 2 {
			g.Errorf("loaded: %+v", g.pool.Loaded())
		}
	})
}

// TestPoolUnloadsNoMoreThanNeeded: while an engine is being freed for a caller, the
// others stay.
func TestPoolUnloadsNoMoreThanNeeded(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 2}, func(g *garage) {
		g.unloadTime = time.Second
		g.acquire("a").Release(nil)
		g.acquire("b").Release(nil)
		var o order
		o.user(g, g.Context(), "c", 0)
		begin := time.Now()
		g.acquire("b").Release(nil)
		if time.Since(begin) != 0 {
			g.Errorf("a loaded engine came after %v", time.Since(begin))
		}
		o.expect(g.T, "c")
		g.expectLog("+a +b -a +c")
	})
}

func TestPoolLimitOfWaiters(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 1, WaiterLimit: 2}, func(g *garage) {
		var o order
		o.user(g, g.Context(), "a", 0)
		o.user(g, g.Context(), "b", 0)
		_, err := g.pool.Acquire(g.Context(), engine.Spec{Name: "c"})
		var full *engine.QueueFullError
		if !errors.As(err, &full) || full.Limit != 2 || full.RetryAfter <= 0 {
			g.Errorf("got %v", err)
		}
		o.expect(g.T, "a", "b")
	})
}

func TestPoolKeepAlive(t *testing.T) {
	ms := func(n int) *time.Duration { d := time.Duration(n) * time.Millisecond; return &d }
	tests := []struct {
		name    string
		release []*time.Duration // one lease each, released in order
		stays   time.Duration    // negative: for ever
	}{
		{"default", []*time.Duration{nil}, time.Minute},
		{"given", []*time.Duration{ms(500)}, 500 * time.Millisecond},
		{"not at all", []*time.Duration{ms(0)}, 0},
		{"for ever", []*time.Duration{ms(-1)}, -1},
		{"the last one decides", []*time.Duration{ms(0), ms(-1), ms(250)}, 250 * time.Millisecond},
		{"not before the last one", []*time.Duration{ms(0), nil}, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inGarage(t, engine.PoolConfig{KeepAlive: time.Minute}, func(g *garage) {
				var leases []*engine.Lease
				for range tt.release {
					leases = append(leases, g.acquire("a"))
				}
				for i, keep := range tt.release {
					leases[i].Release(keep)
				}
				if tt.stays < 0 {
					if m := g.pool.Loaded(); len(m) != 1 || !m[0].Expires.IsZero() {
						g.Errorf("loaded: %+v", m)
					}
					time.Sleep(1000 * time.Hour)
					g.expectLog("+a")
					return
				}
				if m := g.pool.Loaded(); tt.stays > 0 && (len(m) != 1 || time.Until(m[0].Expires) != tt.stays) {
					g.Errorf("loaded: %+v", m)
				}
				if tt.stays > 0 {
					time.Sleep(tt.stays - 1)
					g.expectLog("+a")
					time.Sleep(time.Nanosecond)
				}
				g.expectLog("+a -a")
			})
		})
	}
}

// TestPoolUseExtendsLife: a lease that begins before the expiry and ends after it.
func TestPoolUseExtendsLife(t *testing.T) {
	inGarage(t, engine.PoolConfig{KeepAlive: time.Minute}, func(g *garage) {
		g.acquire("a").Release(nil)
		time.Sleep(59 * time.Second)
		l := g.acquire("a")
		time.Sleep(time.Hour)
		if m := g.pool.Loaded(); len(m) != 1 || time.Until(m[0].Expires) != time.Minute {
			g.Errorf("loaded: %+v", m)
		}
		l.Release(nil)
		time.Sleep(59 * time.Second)
		g.expectLog("+a")
		time.Sleep(time.Second)
		g.expectLog("+a -a")
	})
}

func TestPoolUnload(t *testing.T) {
	inGarage(t, engine.PoolConfig{MaxLoaded: 3}, func(g *garage) {
		if err := g.pool.Unload(g.Context(), "nothing"); err != nil {
			g.Errorf("nothing to unload: %v", err)
		}
		l := g.acquire("a")
		unloaded := make(chan error, 1)
		go func() { unloaded <- g.pool.Unload(g.Context(), "a") }()
		synctest.Wait()
		var o order
		o.user(g, g.Context(), "a", 0) // waits for the next load
		soon, cancel := context.WithTimeout(g.Context(), time.Second)
		defer cancel()
		if err := g.pool.Unload(soon, "a"); !errors.Is(err, context.DeadlineExceeded) {
			g.Errorf("Unload of a model in use ended with %v", err)
		}
		g.expectLog("+a")
		l.Release(nil)
		if err := <-unloaded; err != nil {
			g.Errorf("Unload: %v", err)
		}
		o.expect(g.T, "a")
		g.expectLog("+a -a +a")
	})
}

func TestPoolUnloadWhileLoading(t *testing.T) {
	inGarage(t, engine.PoolConfig{}, func(g *garage) {
		var o order
		o.user(g, g.Context(), "a", 0)
		if err := g.pool.Unload(g.Context(), "a"); err != nil {
			g.Errorf("Unload: %v", err)
		}
		o.expect(g.T, "a")
		g.expectLog("+a -a +a")
	})
}

func TestPoolClose(t *testing.T) {
	tests := []struct {
		name string
		test func(g *garage)
	}{
		{"while loading", func(g *garage) {
			var o order
			o.user(g, g.Context(), "a", 0)
			g.close()
			o.expect(g.T, "a: engine: closed")
			g.expectLog("+a !a")
		}},
		{"leases are released in time", func(g *garage) {
			var o order
			o.user(g, g.Context(), "a", 10*time.Second)
			time.Sleep(loadTime)
			synctest.Wait()
			begin := time.Now()
			g.close()
			if time.Since(begin) != 10*time.Second {
				g.Errorf("Close took %v", time.Since(begin))
			}
		}},
		{"streams are cut off", func(g *garage) {
			l := g.acquire("a")
			stream := submit(g, l.Engine(), engine.Request{Tokens: words(g, "x")})
			go func() {
				for {
					if _, err := stream.Next(context.Background()); err != nil {
						l.Release(nil)
						return
					}
				}
			}()
			ctx, cancel := context.WithTimeout(g.Context(), 0)
			defer cancel()
			if err := g.pool.Close(ctx); err != nil {
				g.Errorf("Close: %v", err)
			}
			g.expectLog("+a -a")
		}},
		{"a lease is never released", func(g *garage) {
			l := g.acquire("a")
			ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
			defer cancel()
			if err := g.pool.Close(ctx); err == nil {
				g.Error("no error")
			}
			l.Release(nil)
			g.expectLog("+a -a")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inGarage(t, engine.PoolConfig{}, func(g *garage) {
				tt.test(g)
				if _, err := g.pool.Acquire(g.Context(), engine.Spec{Name: "a"}); !errors.Is(err, engine.ErrClosed) {
					g.Errorf("Acquire after Close: %v", err)
				}
			})
		})
	}
}

// TestPoolStress has many callers with many models, some of whom leave. Everyone
// who stays is served, and no limit is exceeded at any time.
func TestPoolStress(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			limit := 1 + r.IntN(3)
			inGarage(t, engine.PoolConfig{MaxLoaded: limit, KeepAlive: time.Duration(1+r.IntN(20)) * time.Second}, func(g *garage) {
				var callers sync.WaitGroup
				for range 60 {
					name := fmt.Sprint(1 + r.IntN(5))
					arrive, hold := time.Duration(r.IntN(60))*time.Second, time.Duration(r.IntN(9000))*time.Millisecond
					patience := time.Hour
					if r.IntN(3) == 0 {
						patience = time.Duration(r.IntN(10)) * time.Second
					}
					callers.Go(func() {
						time.Sleep(arrive)
						ctx, cancel := context.WithTimeout(g.Context(), patience)
						defer cancel()
						l, err := g.pool.Acquire(ctx, engine.Spec{Name: name})
						if err != nil {
							if patience == time.Hour {
								g.Errorf("%s: %v", name, err)
							}
							return
						}
						time.Sleep(hold)
						l.Release(nil)
					})
				}
				callers.Wait()
				if g.mostLoaded() > limit || g.pool.Waiting() != 0 {
					g.Errorf("%d loaded at the same time, limit %d; %d wait", g.mostLoaded(), limit, g.pool.Waiting())
				}
			})
		})
	}
}
