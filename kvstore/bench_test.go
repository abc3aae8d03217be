package kvstore_test

import (
	"slices"
	"testing"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

// percentiles reports how long single calls took.
func percentiles(b *testing.B, name string, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), name+"-p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), name+"-p99-ns")
	b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), name+"-max-ns")
}

// BenchmarkReserveAndCommit writes blocks into a full RAM tier, where each Reserve
// evicts one; the payload is not filled in.
func BenchmarkReserveAndCommit(b *testing.B) {
	for _, busy := range []bool{false, true} {
		name := map[bool]string{false: "quiet", true: "with lookups"}[busy]
		b.Run(name, func(b *testing.B) {
			s := open(b, kvstore.Options{RAMBytes: ramFor(20_000), Disk: newFakeDisk()})
			long := headers(1, 1000)
			put(s, long)
			flush(b, s)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for busy {
					select {
					case <-stop:
						return
					default:
						s.Lookup(idsOf(long)).Close()
					}
				}
			}()
			var hs []block.Header
			for p := range 400 {
				hs = append(hs, headers(10+p, 100)...)
			}
			var reserve, commit []time.Duration
			for i := 0; b.Loop(); i++ {
				h := hs[i%len(hs)]
				start := time.Now()
				w, ok := s.Reserve(h)
				reserved := time.Now()
				if !ok {
					continue
				}
				w.Commit()
				commit = append(commit, time.Since(reserved))
				reserve = append(reserve, reserved.Sub(start))
			}
			close(stop)
			<-done
			percentiles(b, "reserve", reserve)
			percentiles(b, "commit", commit)
		})
	}
}

// BenchmarkLookup1000 looks up 1,000 blocks that are in RAM.
func BenchmarkLookup1000(b *testing.B) {
	s := open(b, kvstore.Options{RAMBytes: ramFor(2000)})
	hs := headers(1, 1000)
	mustPut(b, s, hs)
	ids := idsOf(hs)
	for b.Loop() {
		s.Lookup(ids).Close()
	}
}
