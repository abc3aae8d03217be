package prefix_test

import (
	"fmt"
	"runtime"
	"testing"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

const (
	benchChains = 1000
	benchLength = 1000
)

// millionBlocks is a tree of 1,000 chains of 1,000 blocks, all in RAM and on disk.
func millionBlocks(b *testing.B) *prefix.Tree {
	b.Helper()
	tree := prefix.New(3_600_000)
	for c := range benchChains {
		blocks, ids := chain(c, benchLength)
		for _, one := range blocks {
			if tree.Add(prefix.Disk, one) != nil || tree.Add(prefix.RAM, one) != nil {
				b.Fatal("refused")
			}
		}
		tree.Touch(ids, prefix.Tick(c*1000))
	}
	return tree
}

// lookups are chains in an order that no cache foresees.
func lookups() [][]block.ID {
	var out [][]block.ID
	for c := range benchChains {
		_, ids := chain((c*7919)%benchChains, benchLength)
		out = append(out, ids)
	}
	return out
}

func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		before := heapBytes()
		tree := millionBlocks(b)
		after := heapBytes()
		b.ReportMetric(float64(after-before)/float64(tree.Len()), "bytes/block")
		runtime.KeepAlive(tree)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkMatch1000(b *testing.B) {
	tree, all := millionBlocks(b), lookups()
	var at []prefix.Found
	n := 0
	for b.Loop() {
		at = tree.Match(all[n%len(all)], at[:0])
		n++
	}
	if len(at) != benchLength {
		b.Fatalf("%d match", len(at))
	}
}

func BenchmarkTouch1000(b *testing.B) {
	tree, all := millionBlocks(b), lookups()
	n := 0
	for b.Loop() {
		tree.Touch(all[n%len(all)], prefix.Tick(2_000_000+n))
		n++
	}
}

func BenchmarkLeaseAndRelease(b *testing.B) {
	tree, all := millionBlocks(b), lookups()
	n := 0
	for b.Loop() {
		id := all[n%len(all)][benchLength-1]
		tree.Lease(id)
		tree.Release(id)
		n++
	}
}

// BenchmarkEvict takes one block from a million and adds it again.
func BenchmarkEvict(b *testing.B) {
	tree := millionBlocks(b)
	leaf, _ := chain(0, benchLength)
	var victims []prefix.Victim
	for b.Loop() {
		victims = tree.Evict(prefix.RAM, 1, 1, victims[:0])
		if victims[0].ID != leaf[benchLength-1].ID {
			b.Fatal(fmt.Sprint("evicted ", victims))
		}
		if err := tree.Add(prefix.RAM, leaf[benchLength-1]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEvictAll empties a tier of a million blocks.
func BenchmarkEvictAll(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		tree := millionBlocks(b)
		b.StartTimer()
		n := len(tree.Evict(prefix.RAM, 1<<62, 1<<30, nil))
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/block")
	}
}
