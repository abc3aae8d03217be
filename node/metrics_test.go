package node

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"tandem/kvstore"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

// metric is what can be said of one without a running node.
type metric struct {
	name, kind, help string
	labels           []string
}

// allMetrics are those of the registry of a node, by name.
func allMetrics(t *testing.T) map[string]metric {
	t.Helper()
	m := newMetrics(func() []engineSample { return []engineSample{{model: "m"}} }, func() kvstore.Stats { return kvstore.Stats{} },
		func() float64 { return 0 }, func() float64 { return 0 })
	// A vector shows nothing before it has a child: feed each.
	for _, e := range []event{
		RequestPlaced{ID: "r"}, RequestMoved{}, KVWayChosen{Ways: []KVWay{{Kind: "local"}}}, KVMoved{Outcome: "complete", Estimate: 1, Seconds: 1},
		RequestRefused{}, RequestFinished{Endpoint: "chat", Model: "m", Outcome: "stop", PromptTokens: 1, TTFT: 1, Seconds: 1},
		ModelLoaded{Seconds: 1}, ModelFailed{}, PlanMade{}, RoleTaken{To: "hybrid"}, SelfMeasured{Model: "m"}, KVChecked{}, PullFinished{},
	} {
		m.listen(e)
	}
	m.served("m")
	m.estimateError.WithLabelValues().Observe(1)
	gathered, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, f := range gathered {
		kinds[f.GetName()] = strings.ToLower(dto.MetricType_name[int32(f.GetType())])
	}
	descs := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(descs)
	close(descs)
	parts := regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)
	all := map[string]metric{}
	for d := range descs {
		p := parts.FindStringSubmatch(d.String())
		if p == nil {
			t.Fatalf("%s does not look like a description", d)
		}
		all[p[1]] = metric{name: p[1], kind: kinds[p[1]], help: p[2], labels: strings.FieldsFunc(p[3], func(r rune) bool { return r == ',' })}
		if kinds[p[1]] == "" && strings.HasPrefix(p[1], "tandem_") {
			t.Errorf("no event of this test feeds %s: add one, so that its page can say what it is", p[1])
		}
	}
	return all
}

// The page lists every metric of a node, and no other.
func TestMetricsPage(t *testing.T) {
	const file, begin, end = "../docs/metrics.md", "<!-- metrics: made by `go test ./node -run MetricsPage -update` -->\n", "<!-- end of metrics -->\n"
	var b strings.Builder
	b.WriteString("| metric | kind | labels | |\n|---|---|---|---|\n")
	for _, m := range slices.SortedFunc(maps.Values(allMetrics(t)), func(a, b metric) int { return cmp.Compare(a.name, b.name) }) {
		if !strings.HasPrefix(m.name, "tandem_") {
			continue
		}
		labels := ""
		for i, l := range m.labels {
			labels += strings.Repeat(", ", min(i, 1)) + "`" + strings.TrimSpace(l) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", file, begin, end)
	}
	switch {
	case old == b.String():
	case *update:
		if err := os.WriteFile(file, []byte(head+begin+b.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of %s is not that of the program; run go test ./node -run MetricsPage -update", file)
	}
}

// namesOfMetrics are the metrics that a text speaks of.
var namesOfMetrics = regexp.MustCompile(`\b(?:tandem|go|process)_[a-z0-9_]+`)

// unknownMetrics are the names in a text that no metric has.
func unknownMetrics(text string, all map[string]metric) []string {
	var out []string
	for _, name := range namesOfMetrics.FindAllString(text, -1) {
		_, known := all[name]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base, cut := strings.CutSuffix(name, suffix)
			known = known || cut && all[base].kind == "histogram"
		}
		if !known {
			out = append(out, name)
		}
	}
	return out
}

// What the dashboard and the alerts ask for exists.
func TestDashboardsNameMetricsThatExist(t *testing.T) {
	all := allMetrics(t)
	for _, file := range []string{"../ship/grafana-dashboard.json", "../ship/alerts.yaml", "../docs/metrics.md", "../docs/troubleshooting.md"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if unknown := unknownMetrics(string(data), all); len(unknown) > 0 {
			t.Errorf("%s speaks of %v", file, unknown)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(data) {
			t.Errorf("%s is no JSON", file)
		}
	}
	if got := unknownMetrics("rate(tandem_requests_totals[5m]) + tandem_open_streams_bucket + tandem_kv_move_seconds_bucket + tandem_open_streams", all); !slices.Equal(got, []string{"tandem_requests_totals", "tandem_open_streams_bucket"}) {
		t.Errorf("of planted names these were found: %v", got)
	}
}
