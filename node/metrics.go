package node

import (
	"io"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"tandem/kvstore"
	"tandem/node/api"
	"tandem/scheduler"
	"tandem/xfer"
)

// metrics is the registry of one node; nothing is registered globally, so that
// several nodes fit in one process. Labels take values of closed sets only:
// endpoints and outcomes of the API, and names of models that were loaded here.
type metrics struct {
	registry *prometheus.Registry

	requests       *prometheus.CounterVec
	promptTokens   *prometheus.HistogramVec
	cachedTokens   *prometheus.CounterVec
	answerTokens   *prometheus.HistogramVec
	ttft           *prometheus.HistogramVec
	itl            *intervalCollector
	duration       *prometheus.HistogramVec
	modelLoads     *prometheus.CounterVec
	loadSeconds    *prometheus.HistogramVec
	pulls          *prometheus.CounterVec
	kvChecks       *prometheus.CounterVec
	enginesServed  *prometheus.CounterVec
	placed         *prometheus.CounterVec
	moved          *prometheus.CounterVec
	refused        *prometheus.CounterVec
	kvWays         *prometheus.CounterVec
	kvMoves        *prometheus.CounterVec
	kvMovedBytes   *prometheus.CounterVec
	kvMoveSeconds  *prometheus.HistogramVec
	kvMoveError    *prometheus.HistogramVec
	estimateError  *prometheus.HistogramVec
	plans          *prometheus.CounterVec
	roleChanges    *prometheus.CounterVec
	selfBenches    *prometheus.CounterVec
	engineSnapshot *engineCollector
}

// latencyBuckets span 0.5 ms (a token of a tiny model) to 5 minutes (the prompt
// of a large one on a slow box), about 2.5 steps a decade.
var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

func newMetrics(source func() []engineSample, kv func() kvstore.Stats, streams, panics func() float64) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), engineSnapshot: newEngineCollector(source)}
	tokens := prometheus.ExponentialBuckets(1, 4, 10)
	m.requests = counter("tandem_requests_total", "Requests that ended, by outcome; the outcomes add up to all requests.", "endpoint", "model", "outcome")
	m.promptTokens = histogram("tandem_request_prompt_tokens", "Tokens of the prompts of answered requests, cached ones included.", tokens, "model")
	m.cachedTokens = counter("tandem_cached_prompt_tokens_total", "Tokens of prompts that were not computed because their KV was there.", "model")
	m.answerTokens = histogram("tandem_request_answer_tokens", "Tokens of the answers of requests.", tokens, "model")
	m.ttft = histogram("tandem_time_to_first_token_seconds", "From the arrival of a request to its first token.", latencyBuckets, "model")
	m.itl = newIntervalCollector("tandem_inter_token_latency_seconds", "Time between the tokens of one answer.")
	m.duration = histogram("tandem_request_duration_seconds", "From the arrival of a request to its end.", latencyBuckets, "endpoint")
	m.modelLoads = counter("tandem_model_loads_total", "Attempts to load a model.", "result")
	m.loadSeconds = histogram("tandem_model_load_seconds", "Time to load a model.", latencyBuckets)
	m.kvChecks = counter("tandem_kv_checks_total", "Restored prompts that were computed once more and compared.", "result")
	m.pulls = counter("tandem_model_pulls_total", "Downloads of models that ended.", "result")
	m.enginesServed = counter("tandem_engine_requests_served_total", "Requests that this node's engines decoded.", "model")
	m.placed = counter("tandem_requests_placed_total", "Requests that came in here, by who answers: here, or another node.", "node")
	m.moved = counter("tandem_requests_moved_total", "Answers with which another node went on, because the one that computed them was lost or gave them up.")
	m.refused = counter("tandem_placements_refused_total", "Times that a chosen node did not take a request, or lost it.")
	m.kvWays = counter("tandem_kv_ways_total", "Prompts for whose KV there was a choice, by the way that was taken: local, fetched, remote.", "way")
	m.kvMoves = counter("tandem_kv_moves_total", "Transfers of KV blocks from other nodes, by how they ended.", "outcome")
	m.kvMovedBytes = counter("tandem_kv_moved_bytes_total", "Bytes of KV blocks, by direction: in, out.", "direction")
	m.kvMoveSeconds = histogram("tandem_kv_move_seconds", "Time of transfers of KV blocks, with what they waited for.", latencyBuckets)
	m.kvMoveError = histogram("tandem_kv_move_estimate_ratio", "Time of complete transfers over what was expected.", []float64{.25, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 4}, "way")
	m.estimateError = histogram("tandem_estimate_error_seconds", "How far the expected time to the first token was from what came, of requests that were placed by cost.", latencyBuckets)
	m.plans = counter("tandem_plans_total", "Plans of roles that this node made as the leader: agreed, advised, rolled_back.", "what")
	m.roleChanges = counter("tandem_role_changes_total", "Roles that this node took.", "role")
	m.selfBenches = counter("tandem_self_benchmarks_total", "Measurements of models while nobody used them.", "model")
	m.registry.MustRegister(m.estimateError, m.plans, m.roleChanges, m.selfBenches)
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tandem_open_streams", Help: "Answers that are being streamed."}, streams),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tandem_panics_total", Help: "Requests that ended in a panic of the node."}, panics))
	m.registry.MustRegister(m.requests, m.promptTokens, m.cachedTokens, m.answerTokens, m.ttft, m.itl, m.duration,
		m.modelLoads, m.loadSeconds, m.pulls, m.kvChecks, m.enginesServed, m.placed, m.moved, m.refused, m.kvWays, m.kvMoves, m.kvMovedBytes, m.kvMoveSeconds, m.kvMoveError, m.engineSnapshot, newKVCollector(kv),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// listen counts events.
func (m *metrics) listen(e event) {
	switch e := e.(type) {
	case RequestPlaced:
		where := "here"
		if e.Forwarded {
			where = "another"
		}
		m.placed.WithLabelValues(where).Inc()
	case RequestMoved:
		m.moved.WithLabelValues().Inc()
	case KVWayChosen:
		m.kvWays.WithLabelValues(e.Ways[0].Kind).Inc()
	case KVMoved:
		m.kvMovedTo(e)
	case PlanMade:
		what := "agreed"
		switch {
		case e.Advice:
			what = "advised"
		case e.Rollback:
			what = "rolled_back"
		}
		m.plans.WithLabelValues(what).Inc()
	case RoleTaken:
		m.roleChanges.WithLabelValues(e.To).Inc()
	case SelfMeasured:
		m.selfBenches.WithLabelValues(e.Model).Inc()
	case RequestRefused:
		m.refused.WithLabelValues().Inc()
	case RequestFinished:
		m.requestFinished(e)
	case ModelLoaded:
		m.modelLoads.WithLabelValues("loaded").Inc()
		m.loadSeconds.WithLabelValues().Observe(e.Seconds)
	case ModelFailed:
		m.modelLoads.WithLabelValues("failed").Inc()
	case KVChecked:
		result := "equal"
		if !e.Equal {
			result = "different"
		}
		m.kvChecks.WithLabelValues(result).Inc()
	case PullFinished:
		result := "complete"
		if e.Error != "" {
			result = "failed"
		}
		m.pulls.WithLabelValues(result).Inc()
	}
}

// kvMovedTo counts a transfer to this node.
func (m *metrics) kvMovedTo(e KVMoved) {
	m.kvMoves.WithLabelValues(e.Outcome).Inc()
	m.kvMovedBytes.WithLabelValues("in").Add(float64(e.Bytes))
	m.kvMoveSeconds.WithLabelValues().Observe(e.Seconds)
	if e.Outcome == xfer.PullComplete.String() && e.Estimate > 0 {
		way := scheduler.Fetched
		if e.Made {
			way = scheduler.Remote
		}
		m.kvMoveError.WithLabelValues(string(way)).Observe(e.Seconds / e.Estimate)
	}
}

// gaveBlock counts blocks that another node got.
func (m *metrics) gaveBlock(_ int, bytes int64) {
	m.kvMovedBytes.WithLabelValues("out").Add(float64(bytes))
}

// served counts a sequence that an engine of this node decoded, for whomever.
func (m *metrics) served(model string) { m.enginesServed.WithLabelValues(model).Inc() }

func (m *metrics) requestFinished(e RequestFinished) {
	m.requests.WithLabelValues(e.Endpoint, e.Model, e.Outcome).Inc()
	m.duration.WithLabelValues(e.Endpoint).Observe(e.Seconds)
	if e.PromptTokens == 0 {
		return
	}
	m.promptTokens.WithLabelValues(e.Model).Observe(float64(e.PromptTokens))
	m.cachedTokens.WithLabelValues(e.Model).Add(float64(e.CachedTokens))
	m.answerTokens.WithLabelValues(e.Model).Observe(float64(e.CompletionTokens))
	if e.TTFT > 0 {
		m.ttft.WithLabelValues(e.Model).Observe(e.TTFT)
	}
	m.itl.add(e.Model, e.intervals)
}

// write encodes all metrics in the Prometheus text format.
func (m *metrics) write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return err
	}
	enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// engineSample is the state of one model's engine at scrape time. Counters of
// unloaded engines are kept by the node, so that no counter goes down.
type engineSample struct {
	model                      string
	running, queued            int
	kvUsed, kvCells, resident  int
	computed, generated, steps int64
}

// engineCollector reads the engines when it is scraped: gauges are true at that
// moment instead of at the last change.
type engineCollector struct {
	source                                                  func() []engineSample
	running, queued, usage, resident, computed, made, steps *prometheus.Desc
}

func newEngineCollector(source func() []engineSample) *engineCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"model"}, nil)
	}
	return &engineCollector{source: source,
		running:  desc("tandem_running_requests", "Requests that hold a slot."),
		queued:   desc("tandem_queued_requests", "Requests that wait for a slot."),
		usage:    desc("tandem_kv_usage_ratio", "Share of the KV cache in use by running requests."),
		resident: desc("tandem_kv_resident_tokens", "Tokens kept in the KV cache for reuse."),
		computed: desc("tandem_prompt_tokens_computed_total", "Tokens of prompts that the engine computed."),
		made:     desc("tandem_generated_tokens_total", "Tokens that the engine generated."),
		steps:    desc("tandem_engine_steps_total", "Steps of the model."),
	}
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.running, c.queued, c.usage, c.resident, c.computed, c.made, c.steps} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.source() {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.model)
		}
		count := func(d *prometheus.Desc, v int64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), s.model)
		}
		gauge(c.running, float64(s.running))
		gauge(c.queued, float64(s.queued))
		gauge(c.usage, float64(s.kvUsed)/float64(max(s.kvCells, 1)))
		gauge(c.resident, float64(s.resident))
		count(c.computed, s.computed)
		count(c.made, s.generated)
		count(c.steps, s.steps)
	}
}

// intervalCollector sums the histograms that the API makes of every request, so
// that a token costs no registry lookup.
type intervalCollector struct {
	desc *prometheus.Desc

	mu struct {
		sync.Mutex
		byModel map[string]*intervalSum
	}
}

type intervalSum struct {
	buckets []uint64 // not cumulative; the last has no bound
	seconds float64
}

func newIntervalCollector(name, help string) *intervalCollector {
	c := &intervalCollector{desc: prometheus.NewDesc(name, help, []string{"model"}, nil)}
	c.mu.byModel = map[string]*intervalSum{}
	return c
}

func (c *intervalCollector) add(model string, h api.Intervals) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.mu.byModel[model]
	if sum == nil {
		sum = &intervalSum{buckets: make([]uint64, len(h.Count))}
		c.mu.byModel[model] = sum
	}
	for i, n := range h.Count {
		sum.buckets[i] += uint64(n)
	}
	sum.seconds += h.Sum.Seconds()
}

// Describe implements prometheus.Collector.
func (c *intervalCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *intervalCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for model, sum := range c.mu.byModel {
		buckets, total := map[float64]uint64{}, uint64(0)
		for i, bound := range api.IntervalBounds() {
			total += sum.buckets[i]
			buckets[bound.Seconds()] = total
		}
		total += sum.buckets[len(sum.buckets)-1]
		ch <- prometheus.MustNewConstHistogram(c.desc, total, sum.seconds, buckets, model)
	}
}
