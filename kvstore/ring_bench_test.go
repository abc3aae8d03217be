//go:build unix

package kvstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"tandem/kvstore/block"
)

// Blocks of 64 tokens of SmolLM2-135M are 1.4 MiB, of Qwen3-1.7B 7 MiB.
var benchLayers = []int{16, 90, 448}

func benchSizes(b *testing.B, fn func(b *testing.B, m ringMaker)) {
	for _, layers := range benchLayers {
		m := newRingMaker(layers, 64)
		b.Run(fmt.Sprintf("%dKiB", layers*16), func(b *testing.B) {
			b.SetBytes(int64(m.count * m.shape.Bytes()))
			fn(b, m)
		})
	}
}

// processorTime is what the process used so far, in seconds.
func processorTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// reportProcessor tells what a byte costs; begin is processorTime when it began.
func reportProcessor(b *testing.B, begin float64, bytes int) {
	b.ReportMetric((processorTime(b)-begin)/(float64(bytes)*float64(b.N)/1e9), "cpu-s/GB")
}

// benchRecord is a block with a new id each time, but always the same payload.
func benchRecord(r Record, i int) Record {
	r.Header.ID = block.ID{1, byte(i), byte(i >> 8), byte(i >> 16)}
	return r
}

func BenchmarkRingPut(b *testing.B) {
	benchSizes(b, func(b *testing.B, m ringMaker) {
		rec := m.chain(1, 1)[0]
		r, err := OpenRing(filepath.Join(b.TempDir(), "kv"), RingOptions{Bytes: 2 << 30})
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		batch := max(1, 8<<20/len(rec.Payload))
		begin := processorTime(b)
		b.ResetTimer()
		for i := 0; i < b.N; {
			var records []Record
			for ; len(records) < batch && i < b.N; i++ {
				records = append(records, benchRecord(rec, i))
			}
			if err := r.Put(b.Context(), records); err != nil {
				b.Fatal(err)
			}
		}
		reportProcessor(b, begin, len(rec.Payload))
	})
}

func BenchmarkRingGet(b *testing.B) {
	benchSizes(b, func(b *testing.B, m ringMaker) {
		rec := m.chain(1, 1)[0]
		r, err := OpenRing(filepath.Join(b.TempDir(), "kv"), RingOptions{Bytes: 2 << 30})
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		n := 512 << 20 / len(rec.Payload)
		for i := range n {
			put(b, r, benchRecord(rec, i))
		}
		buf := make([]byte, len(rec.Payload))
		begin := processorTime(b)
		b.ResetTimer()
		for i := range b.N {
			if _, err := r.Get(b.Context(), benchRecord(rec, i*7919%n).Header.ID, func(n int) []byte { return buf[:n] }); err != nil {
				b.Fatal(err)
			}
		}
		reportProcessor(b, begin, len(rec.Payload))
	})
}

// The same bytes in one file per block: what the ring is compared with.
func BenchmarkPlainFilePut(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%t", sync), func(b *testing.B) {
			benchSizes(b, func(b *testing.B, m ringMaker) {
				rec := m.chain(1, 1)[0]
				value := append(block.AppendHeader(nil, rec.Header), rec.Payload...)
				dir := b.TempDir()
				for i := range b.N {
					name := filepath.Join(dir, fmt.Sprint(i%(2<<30/len(value))))
					os.Remove(name)
					f, err := os.Create(name)
					if err == nil {
						_, err = f.Write(value)
					}
					if err == nil && sync {
						err = f.Sync()
					}
					if err != nil {
						b.Fatal(err)
					}
					f.Close()
				}
			})
		})
	}
}

func BenchmarkPlainFileGet(b *testing.B) {
	benchSizes(b, func(b *testing.B, m ringMaker) {
		rec := m.chain(1, 1)[0]
		value := append(block.AppendHeader(nil, rec.Header), rec.Payload...)
		dir := b.TempDir()
		n := 512 << 20 / len(value)
		for i := range n {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), value, 0o600); err != nil {
				b.Fatal(err)
			}
		}
		b.ResetTimer()
		for i := range b.N {
			f, err := os.Open(filepath.Join(dir, fmt.Sprint(i*7919%n)))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := f.ReadAt(value, 0); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
}

// Opening rebuilds the index by keys.
func BenchmarkRingOpen(b *testing.B) {
	for _, blocks := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(blocks), func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "kv")
			m := newRingMaker(1, 64)
			rec := m.chain(1, 1)[0]
			open := func() *Ring {
				r, err := OpenRing(dir, RingOptions{Bytes: 4 << 30})
				if err != nil {
					b.Fatal(err)
				}
				return r
			}
			r := open()
			for i := range blocks {
				rec = benchRecord(rec, i)
				rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}).Read(rec.Header.ID[:])
				put(b, r, rec)
			}
			r.Close()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			routines := runtime.NumGoroutine()
			for b.Loop() {
				r = open()
				b.StopTimer()
				if n := r.Stats().Blocks; n != blocks {
					b.Fatalf("%d blocks", n)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapInuse-before.HeapInuse)/(1<<20), "heap-MiB")
				b.ReportMetric(float64(runtime.NumGoroutine()-routines), "goroutines")
				b.ReportMetric(float64(r.Stats().Generations), "generations")
				r.Close()
				b.StartTimer()
			}
		})
	}
}
