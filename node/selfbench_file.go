package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The file of figures, and its limits: some hundred bytes for each model with each
// setting that it was measured with.
const (
	benchFile        = "self-bench.json"
	benchFileMax     = 1 << 20
	benchFiguresMax  = 256 // older ones are dropped
	benchKeyBytesMax = 1024
	benchPointsMax   = 16
)

// load reads the file. One that cannot be read is as good as none: it is measured anew.
func (b *selfBench) load() {
	name := filepath.Join(b.node.cfg.DataDir, benchFile)
	f, err := os.Open(name)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			b.node.log.Warn("the figures of earlier self-benchmarks cannot be read", "error", err)
		}
		return
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, benchFileMax+1))
	if err == nil {
		b.figures, err = decodeFigures(data)
	}
	if err != nil {
		b.figures = map[string]SelfFigures{}
		b.node.log.Warn("the figures of earlier self-benchmarks cannot be used; models are measured anew", "file", name, "error", err)
	}
}

// decodeFigures reads what save wrote.
func decodeFigures(data []byte) (map[string]SelfFigures, error) {
	if len(data) > benchFileMax {
		return nil, fmt.Errorf("the file has more than %d bytes", benchFileMax)
	}
	out := map[string]SelfFigures{}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	if out == nil || len(out) > benchFiguresMax {
		return nil, fmt.Errorf("%d figures; allowed are up to %d", len(out), benchFiguresMax)
	}
	for key, f := range out {
		if len(key) > benchKeyBytesMax {
			return nil, fmt.Errorf("a key of %d bytes; allowed are %d", len(key), benchKeyBytesMax)
		}
		if err := f.validate(); err != nil {
			return nil, fmt.Errorf("%.80q: %w", key, err)
		}
	}
	return out, nil
}

// validate refuses figures that nothing could be computed from.
func (f *SelfFigures) validate() error {
	if n := len(f.Prefill); n < 1 || n > benchPointsMax || len(f.Decode) < 1 || len(f.Decode) > benchPointsMax {
		return fmt.Errorf("%d points of prefill and %d of decode; allowed are 1 to %d", n, len(f.Decode), benchPointsMax)
	}
	const tokensMax = 1 << 24
	last := 0
	for _, p := range f.Prefill {
		if p.Tokens <= last || p.Tokens > tokensMax || !sane(p.Ms) {
			return fmt.Errorf("prefill: %d tokens in %g ms", p.Tokens, p.Ms)
		}
		last = p.Tokens
	}
	last = 0
	for _, p := range f.Decode {
		if p.Streams <= last || p.Streams > tokensMax || !sane(p.Ms) {
			return fmt.Errorf("decode: %d streams, %g ms", p.Streams, p.Ms)
		}
		last = p.Streams
	}
	if !sane(f.DecodeLong.Ms) || f.Import < 0 || f.Export < 0 || math.IsInf(f.Import+f.Export, 0) {
		return fmt.Errorf("decode behind a long prompt in %g ms, import %g, export %g bytes/s", f.DecodeLong.Ms, f.Import, f.Export)
	}
	return nil
}

// sane tells whether a time in ms can have been measured.
func sane(ms float64) bool { return ms > 1e-6 && ms < 1e9 }

// save writes the file if something has changed. What cannot be written is measured
// anew after a restart.
func (b *selfBench) save() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.unsaved {
		return
	}
	b.unsaved = false
	keep := map[string]SelfFigures{}
	var keys []string
	for key, f := range b.figures {
		if !strings.HasPrefix(key, unnamed) && len(key) <= benchKeyBytesMax && time.Since(f.At) < benchKept {
			keep[key] = f
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, c string) int { return keep[c].At.Compare(keep[a].At) })
	for len(keys) > benchFiguresMax {
		delete(keep, keys[len(keys)-1])
		keys = keys[:len(keys)-1]
	}
	data, err := json.MarshalIndent(keep, "", " ")
	if err == nil {
		name := filepath.Join(b.node.cfg.DataDir, benchFile)
		if err = os.WriteFile(name+".new", data, 0o600); err == nil {
			err = os.Rename(name+".new", name)
		}
	}
	if err != nil {
		b.node.log.Warn("the figures of the self-benchmark cannot be kept", "error", err)
	}
}
