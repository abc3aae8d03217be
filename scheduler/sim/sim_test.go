package sim_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"tandem/scheduler"
	"tandem/scheduler/sim"
)

// small is a short run with outages.
func small(policy string) sim.Options {
	nodes := sim.Homelab()
	for i := range nodes {
		nodes[i].Queue = 20
	}
	return sim.Options{
		Policy: policy, Nodes: nodes, Arrivals: sim.Chats(1, 250, 2), Seed: 7,
		Outages: []sim.Outage{
			{Node: 0, From: 20 * time.Second, To: 60 * time.Second},
			{Node: 3, From: 30 * time.Second, To: 31 * time.Second}, // back before anybody knows
			{Node: 7, From: 50 * time.Second, To: 300 * time.Second},
		},
	}
}

func TestEveryRequestIsAnswered(t *testing.T) {
	for _, policy := range scheduler.PolicyNames() {
		t.Run(policy, func(t *testing.T) {
			o := small(policy)
			r, err := sim.Run(o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Completed != len(o.Arrivals) {
				t.Errorf("%d of %d requests were answered", r.Completed, len(o.Arrivals))
			}
			if r.ToFailed != 0 {
				t.Errorf("%d requests went to nodes that were known to be dead", r.ToFailed)
			}
			if r.Lost == 0 {
				t.Error("no outage hit a request: the test shows nothing")
			}
			if r.TTFT50 <= 0 || r.TTFT50 > r.TTFT99 || r.Hit < 0 || r.Hit >= 1 {
				t.Errorf("figures cannot be right: %+v", r)
			}
		})
	}
}

func TestEqualSeedsGiveEqualResults(t *testing.T) {
	for _, policy := range scheduler.PolicyNames() {
		a, errA := sim.Run(small(policy))
		b, errB := sim.Run(small(policy))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s:\n%+v\n%+v", policy, a, b)
		}
		o := small(policy)
		o.Seed++
		c, err := sim.Run(o)
		if err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(a, c) {
			t.Errorf("%s: another seed gives the same", policy)
		}
	}
}

// The cost policy is never far behind a policy that knows nothing.
func TestCostIsNotWorseThanTheDumbOnes(t *testing.T) {
	o := small("")
	o.Outages, o.Arrivals = nil, sim.Chats(1, 800, 2)
	results, err := sim.Policies(o, scheduler.PolicyNames())
	if err != nil {
		t.Fatal(err)
	}
	cost := results[0]
	for _, other := range results[1:] {
		if cost.TTFT50 > other.TTFT50*11/10 || cost.TTFT99 > other.TTFT99*11/10 || cost.Hit < other.Hit*0.9 {
			t.Errorf("cost: hit %.3f, TTFT %v and %v; %s: %.3f, %v and %v", cost.Hit, cost.TTFT50, cost.TTFT99, other.Policy, other.Hit, other.TTFT50, other.TTFT99)
		}
	}
}

// One request alone takes what its parts take, to the microsecond.
func TestOneRequestTakesItsTime(t *testing.T) {
	o := sim.Options{
		Policy: "cost", Seed: 1, RTT: 2 * time.Millisecond,
		Nodes:    []sim.NodeSpec{{Name: "n", PrefillRate: 1000, DecodeMs: 10, Slots: 1, Blocks: 10}},
		Arrivals: []sim.Arrival{{Input: 1024, Output: 11, Blocks: []uint64{1, 2}}, {At: 10 * time.Second, Input: 1100, Output: 11, Blocks: []uint64{1, 2}}},
	}
	r, err := sim.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	// 1,024 tokens at 1,000 a second, then 1,100 of which 1,024 are cached.
	if want := 1024 * time.Millisecond; r.TTFT99 != want {
		t.Errorf("TTFT %v, want %v", r.TTFT99, want)
	}
	if want := (1024 + 76) * time.Millisecond / 2; r.TTFTMean != want {
		t.Errorf("mean TTFT %v, want %v", r.TTFTMean, want)
	}
	if r.ITL50 != 10*time.Millisecond {
		t.Errorf("ITL %v, want 10ms", r.ITL50)
	}
	if want := 1024.0 / (1024 + 1100); r.Hit != want {
		t.Errorf("hit %v, want %v", r.Hit, want)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for what, change := range map[string]func(*sim.Options){
		"no nodes":      func(o *sim.Options) { o.Nodes = nil },
		"no slots":      func(o *sim.Options) { o.Nodes = []sim.NodeSpec{{PrefillRate: 1, DecodeMs: 1, Blocks: 1}} },
		"a policy":      func(o *sim.Options) { o.Policy = "best" },
		"entries":       func(o *sim.Options) { o.Entries = 9 },
		"an outage":     func(o *sim.Options) { o.Outages = []sim.Outage{{Node: 8, To: 1}} },
		"of no length":  func(o *sim.Options) { o.Outages = []sim.Outage{{From: 1, To: 1}} },
		"speed":         func(o *sim.Options) { o.Speed = -1 },
		"far too many":  func(o *sim.Options) { o.Nodes = sim.Equal(65) },
		"speed is zero": nil,
	} {
		o := small("cost")
		o.Arrivals = o.Arrivals[:1]
		if change != nil {
			change(&o)
		}
		if _, err := sim.Run(o); (err == nil) != (change == nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTracesAreRead(t *testing.T) {
	got, err := sim.ReadMooncake(strings.NewReader(`{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}` + "\n\n" +
		`{"timestamp": 27, "input_length": 10, "output_length": 0, "hash_ids": []}`))
	want := []sim.Arrival{{Input: 600, Output: 5, Blocks: []uint64{0, 1}}, {At: 27 * time.Millisecond, Input: 10, Blocks: []uint64{}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = sim.ReadAzure(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"))
	want = []sim.Arrival{{Input: 374, Output: 44}, {At: 4314579 * time.Microsecond, Input: 396, Output: 109}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"{", `{"input_length": 0}`, `{"input_length": 99999999}`, `{"input_length": 1, "timestamp": -5}`, `{"input_length":1,"hash_ids":[-1]}`} {
		if _, err := sim.ReadMooncake(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"yesterday,1,1\n", "2023-11-16 18:15:46,x,1\n", "2023-11-16 18:15:46,1\n"} {
		if _, err := sim.ReadAzure(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzTraces(f *testing.F) {
	f.Add([]byte(`{"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}`))
	f.Add([]byte("2023-11-16 18:15:46.6805900,374,44\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, read := range []func(string) ([]sim.Arrival, error){
			func(s string) ([]sim.Arrival, error) { return sim.ReadMooncake(strings.NewReader(s)) },
			func(s string) ([]sim.Arrival, error) { return sim.ReadAzure(strings.NewReader(s)) },
		} {
			list, err := read(string(b))
			for _, a := range list {
				if err == nil && (a.At < 0 || a.Input < 1 || a.Output < 0 || 2*len(a.Blocks) > len(b)) {
					t.Errorf("%+v of %d bytes", a, len(b))
				}
			}
		}
	})
}

func Example() {
	results, err := sim.Policies(sim.Options{Nodes: sim.Equal(4), Arrivals: sim.Chats(1, 300, 1), Seed: 1}, []string{"cost", "random"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("more tokens cached:", results[0].Hit > results[1].Hit)
	fmt.Println("sooner the first token:", results[0].TTFT50 < results[1].TTFT50)
	if err := sim.Table(os.Stderr, results); err != nil {
		fmt.Println(err)
	}
	// Output:
	// more tokens cached: true
	// sooner the first token: true
}

// BenchmarkPolicies runs each policy on generated chats.
func BenchmarkPolicies(b *testing.B) {
	for _, policy := range scheduler.PolicyNames() {
		b.Run(policy, func(b *testing.B) {
			o := sim.Options{Policy: policy, Nodes: sim.Homelab(), Arrivals: sim.Chats(1, 2000, 1), Seed: 1}
			for b.Loop() {
				r, err := sim.Run(o)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(100*r.Hit, "hit-%")
				b.ReportMetric(float64(r.TTFT50.Milliseconds()), "ttft-p50-ms")
				b.ReportMetric(float64(r.TTFT99.Milliseconds()), "ttft-p99-ms")
			}
		})
	}
}
