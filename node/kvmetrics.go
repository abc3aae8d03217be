package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"tandem/kvstore"
)

// kvCollector reads the tiers of kept KV blocks when it is scraped.
type kvCollector struct {
	source func() kvstore.Stats
	tiers  []kvFigure // one sample per tier
	rest   []kvFigure
}

// kvFigure is one number of the tiers, or of the store.
type kvFigure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	tier func(kvstore.TierStats) float64
	all  func(kvstore.Stats) float64
}

func newKVCollector(source func() kvstore.Stats) *kvCollector {
	c := &kvCollector{source: source}
	tier := func(kind prometheus.ValueType, name, help string, value func(kvstore.TierStats) float64) {
		c.tiers = append(c.tiers, kvFigure{desc: prometheus.NewDesc("tandem_kv_"+name, help, []string{"tier"}, nil), kind: kind, tier: value})
	}
	all := func(kind prometheus.ValueType, name, help string, value func(kvstore.Stats) float64) {
		c.rest = append(c.rest, kvFigure{desc: prometheus.NewDesc("tandem_kv_"+name, help, nil, nil), kind: kind, all: value})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	tier(gauge, "blocks", "KV blocks that a tier holds.", func(t kvstore.TierStats) float64 { return float64(t.Blocks) })
	tier(gauge, "bytes", "Bytes that a tier takes; on disk, of the file system.", func(t kvstore.TierStats) float64 { return float64(t.Bytes) })
	tier(gauge, "budget_bytes", "Bytes that a tier may take.", func(t kvstore.TierStats) float64 { return float64(t.Budget) })
	tier(counter, "hits_total", "Blocks that requests found in a tier, and in no faster one.", func(t kvstore.TierStats) float64 { return float64(t.Hits) })
	tier(counter, "misses_total", "Blocks that requests asked for and did not find in a tier or a faster one.", func(t kvstore.TierStats) float64 { return float64(t.Misses) })
	tier(counter, "hit_tokens_total", "Tokens of the blocks that were found.", func(t kvstore.TierStats) float64 { return float64(t.TokensHit) })
	tier(counter, "written_bytes_total", "Bytes of blocks that came into a tier.", func(t kvstore.TierStats) float64 { return float64(t.BytesIn) })
	tier(counter, "read_bytes_total", "Bytes of blocks that were read from disk.", func(t kvstore.TierStats) float64 { return float64(t.BytesOut) })
	tier(counter, "evictions_total", "Blocks that made room for others.", func(t kvstore.TierStats) float64 { return float64(t.Evictions) })
	tier(counter, "refusals_total", "Blocks for which there was no room.", func(t kvstore.TierStats) float64 { return float64(t.Refusals) })
	tier(counter, "corrupt_total", "Blocks that did not verify and were deleted.", func(t kvstore.TierStats) float64 { return float64(t.Corrupt) })
	all(gauge, "queue_bytes", "Bytes of blocks that wait to be written to disk.", func(s kvstore.Stats) float64 { return float64(s.Queue.Bytes) })
	all(counter, "queue_drops_total", "Blocks that were not written to disk, or not in time.", func(s kvstore.Stats) float64 { return float64(s.Queue.Drops) })
	all(counter, "spared_tokens_total", "Tokens that were restored from kept blocks instead of computed.", func(s kvstore.Stats) float64 { return float64(s.TokensSpared) })
	return c
}

// Describe implements prometheus.Collector.
func (c *kvCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range append(c.tiers, c.rest...) {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *kvCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.source()
	for _, f := range c.tiers {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.tier(s.RAM), "ram")
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.tier(s.Disk), "disk")
	}
	for _, f := range c.rest {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.all(s))
	}
}
