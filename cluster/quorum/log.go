package quorum

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	logEvery    = time.Minute // one line of a kind in this time
	logKindsMax = 256
)

// calm passes on one line of a kind a minute, with the number that it held back. Raft
// and its transport say the same several times a second while a peer is gone.
type calm struct {
	slog.Handler
	shared *calmShared
}

type calmShared struct {
	mu   sync.Mutex
	seen map[string]*calmKind
}

type calmKind struct {
	next time.Time
	held int
}

func newCalm(h slog.Handler) *slog.Logger {
	return slog.New(calm{Handler: h, shared: &calmShared{seen: map[string]*calmKind{}}})
}

// Handle passes a record on or counts it. Its kind is its level, its message and the
// peer that it is about.
func (c calm) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return c.Handler.Handle(ctx, r)
	}
	kind := r.Level.String() + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "peer" || a.Key == "target" {
			kind += a.Value.String()
		}
		return true
	})
	held, pass := c.shared.pass(kind, time.Now())
	if !pass {
		return nil
	}
	if held > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("held_back", held))
	}
	return c.Handler.Handle(ctx, r)
}

func (s *calmShared) pass(kind string, now time.Time) (held int, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.seen[kind]
	if k == nil {
		if len(s.seen) >= logKindsMax {
			clear(s.seen)
		}
		k = &calmKind{}
		s.seen[kind] = k
	}
	if now.Before(k.next) {
		k.held++
		return 0, false
	}
	held, k.held, k.next = k.held, 0, now.Add(logEvery)
	return held, true
}

// WithAttrs and WithGroup keep the count.
func (c calm) WithAttrs(attrs []slog.Attr) slog.Handler {
	return calm{Handler: c.Handler.WithAttrs(attrs), shared: c.shared}
}

// WithGroup keeps the count.
func (c calm) WithGroup(name string) slog.Handler {
	return calm{Handler: c.Handler.WithGroup(name), shared: c.shared}
}

// raftSink takes raft's lines. Its steps are details here: what people should know,
// such as who leads, this package says itself.
type raftSink struct{ logger *slog.Logger }

func raftLogger(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(raftSink{newCalm(logger.Handler())})
	return l
}

var raftLevels = map[hclog.Level]slog.Level{hclog.Info: slog.LevelDebug, hclog.Warn: slog.LevelDebug, hclog.Error: slog.LevelInfo}

// Accept is called for each line.
func (s raftSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to, ok := raftLevels[level]
	if !ok || !s.logger.Enabled(context.Background(), to) {
		return
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(f[0].(string), f[1:]...)
		}
	}
	s.logger.Log(context.Background(), to, "raft: "+msg, args...)
}
