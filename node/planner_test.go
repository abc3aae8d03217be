package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/node"
	"tandem/node/nodetest"
	"tandem/scheduler"
)

// TestSelfBenchmark: a model is measured before the first request, the figures are in
// what other nodes are told, and a new process reads them instead of measuring again.
func TestSelfBenchmark(t *testing.T) {
	dir := t.TempDir()
	n := nodetest.Start(t, babble(), func(c *node.Config) { c.SelfBench, c.DataDir = "auto", dir })
	measured := func(s node.Status) bool { return len(s.Models) == 1 && s.Models[0].Rates.Measured != nil }
	n.Until("the model is measured", func(s node.Status) bool {
		return measured(s) && s.Models[0].KVKept
	})
	s := n.Status(context.Background()).(node.Status)
	r := s.Models[0].Rates
	if r.PrefillMs <= 0 || len(r.Decode) != 3 || r.Decode[0].Ms < 2 || r.Measured.Rounds != 5 {
		t.Errorf("rates %+v", r)
	}
	if s.Models[0].Computed != 0 || s.Models[0].Generated != 0 || s.Models[0].Resident != 0 {
		t.Errorf("the measurement counts as requests: %+v", s.Models[0])
	}
	file := filepath.Join(dir, "self-bench.json")
	n.Until("the figures are written", func(node.Status) bool { _, err := os.Stat(file); return err == nil })
	n.Close()
	again := nodetest.Start(t, babble(), func(c *node.Config) {
		c.SelfBench, c.DataDir = "auto", dir
	})
	again.Until("the figures are read", measured)
	if at := again.Status(context.Background()).(node.Status).Models[0].Rates.Measured.At; !at.Equal(r.Measured.At) {
		t.Errorf("it was measured at %v, again at %v", r.Measured.At, at)
	}
}

// TestBadFiguresAreMeasuredAnew: a damaged file stops nothing.
func TestBadFiguresAreMeasuredAnew(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "self-bench.json"), []byte(`{"x":{"prefill":[]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	n := nodetest.Start(t, babble(), func(c *node.Config) { c.SelfBench, c.DataDir = "auto", dir })
	n.Until("the model is measured", func(s node.Status) bool { return len(s.Models) == 1 && s.Models[0].Rates.Measured != nil })
}

// fixedPlans proposes one plan after the other, as the test says.
type fixedPlans struct {
	mu    sync.Mutex
	roles map[string]member.Role // by name
	asked int
}

func (p *fixedPlans) want(roles map[string]member.Role) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roles = roles
}

func (p *fixedPlans) step(in scheduler.PlanInput) scheduler.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	v := scheduler.Verdict{Roles: map[member.ID]member.Role{}, Reasons: []string{"the test says so"}}
	for _, n := range in.Nodes {
		if r := p.roles[n.Name]; r != "" && r != member.Hybrid {
			v.Roles[n.ID] = r
			v.Change = v.Change || in.Roles[n.ID] != r
		}
	}
	v.Change = v.Change || len(v.Roles) != len(in.Roles)
	return v
}

// planned is a cluster whose leader follows p.
func planned(t *testing.T, nodes int, p *fixedPlans, change func(i int, c *node.Config)) []*nodetest.Node {
	t.Helper()
	return nodetest.StartCluster(t, nodes, babble(), func(i int, c *node.Config) {
		c.Planner, c.SelfBench, c.PlanStep, c.PlanEvery = "auto", "auto", p.step, 20*time.Millisecond
		if change != nil {
			change(i, c)
		}
	})
}

// haveRoles waits until every node sees the roles, by name.
func haveRoles(t *testing.T, nodes []*nodetest.Node, roles map[string]member.Role) {
	t.Helper()
	for _, n := range nodes {
		n.Until(fmt.Sprintf("the nodes have roles %v", roles), func(s node.Status) bool {
			for _, m := range s.Cluster.Members {
				want := roles[m.Name]
				if want == "" {
					want = member.Hybrid
				}
				if m.State != "left" && m.Role != string(want) {
					return false
				}
			}
			return true
		})
	}
}

// TestRolesChangeUnderLoad: nodes change roles again and again while requests run, and
// each request is answered whole.
func TestRolesChangeUnderLoad(t *testing.T) {
	plans := &fixedPlans{}
	nodes := planned(t, 4, plans, nil)
	want := map[string]string{}
	for i := range 4 {
		q := fmt.Sprintf("question %d", i)
		want[q] = read(t, openChat(t, t.Context(), nodes[0], q, `,"max_tokens":120`), nil).text
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := 0
	for c := range 8 {
		wg.Go(func() {
			for i := c; ctx.Err() == nil; i++ {
				q := fmt.Sprintf("question %d", i%4)
				got := read(t, openChat(t, t.Context(), nodes[i%4], q, `,"max_tokens":120`), nil)
				if got.text != want[q] || got.completion != 120 {
					t.Errorf("%s: %d tokens, %q; want %q", q, got.completion, got.text, want[q])
				}
				mu.Lock()
				answers++
				mu.Unlock()
			}
		})
	}
	for _, roles := range []map[string]member.Role{
		{"n1": member.Prefill, "n2": member.Decode, "n3": member.Decode, "n4": member.Decode},
		{"n1": member.Decode, "n2": member.Prefill, "n3": member.Prefill, "n4": member.Decode},
		{},
		{"n4": member.Prefill, "n1": member.Decode},
		{},
	} {
		plans.want(roles)
		haveRoles(t, nodes, roles)
	}
	stop()
	wg.Wait()
	if answers < 16 {
		t.Errorf("%d answers: the test shows little", answers)
	}
	status, page := nodes[0].Get("/metrics")
	if status != 200 || !strings.Contains(page, "tandem_role_changes_total") || !strings.Contains(page, "tandem_estimate_error_seconds_count") {
		t.Errorf("metrics: %d", status)
	}
	s := nodes[0].Status(context.Background()).(node.Status)
	if len(s.Planner.History) < 4 || s.Planner.Mode != "auto" || s.Planner.Reason != "the test says so" || s.Planner.Says == nil {
		t.Errorf("planner %+v", s.Planner)
	}
	estimates := 0
	for _, n := range nodes {
		estimates += n.Status(context.Background()).(node.Status).Planner.Estimator.Requests
		n.AtRest()
	}
	if estimates < answers/2 {
		t.Errorf("%d estimates of %d answers", estimates, answers)
	}
}

// TestPlanOutlivesLeader: the leader goes in mid-plan; the plan holds, the next leader
// goes on, and without a majority what was planned last holds.
func TestPlanOutlivesLeader(t *testing.T) {
	plans := &fixedPlans{}
	nodes := planned(t, 4, plans, func(_ int, c *node.Config) { c.DrainTime = time.Millisecond })
	roles := map[string]member.Role{"n1": member.Prefill, "n2": member.Decode, "n3": member.Prefill, "n4": member.Decode}
	plans.want(roles)
	nodes[0].Until("a plan is agreed on", func(s node.Status) bool { return s.Planner.Epoch > 0 })
	byID := map[string]*nodetest.Node{}
	for _, n := range nodes {
		byID[n.ID()] = n
	}
	leader := byID[nodes[0].Status(context.Background()).(node.Status).Cluster.Leader]
	if leader == nil {
		t.Fatal("nobody leads")
	}
	var left []*nodetest.Node
	for _, n := range nodes {
		if n != leader {
			left = append(left, n)
		}
	}
	stopNode(t, leader)
	haveRoles(t, left, roles)
	left[0].Until("another one leads", func(s node.Status) bool {
		return s.Cluster.Quorum && s.Cluster.Leader != leader.ID()
	})
	next := map[string]member.Role{left[0].Name: member.Decode, left[1].Name: member.Prefill, left[2].Name: member.Decode}
	plans.want(next)
	haveRoles(t, left, next)
	// A node that comes to be alone answers everything: nobody is left for the other part.
	stopNode(t, left[1])
	haveRoles(t, []*nodetest.Node{left[0], left[2]}, map[string]member.Role{left[1].Name: member.Prefill})
	if _, head := ask(t, left[0], chat("who are you", `,"max_tokens":10`), 200); head.Get("X-Tandem-Node") == "" {
		t.Errorf("headers %v", head)
	}
}

func stopNode(t *testing.T, n *nodetest.Node) {
	t.Helper()
	n.Stop()
	if err := n.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestPlanWithoutLeader: without a majority there is no leader, and what was planned last
// holds, until a node has nobody left for the other part.
func TestPlanWithoutLeader(t *testing.T) {
	plans := &fixedPlans{}
	nodes := planned(t, 3, plans, nil)
	roles := map[string]member.Role{"n1": member.Prefill, "n2": member.Decode, "n3": member.Decode}
	plans.want(roles)
	haveRoles(t, nodes, roles)
	for _, n := range nodes[1:] {
		if err := n.StopAgreeing(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	nodes[0].Until("there is no leader", func(s node.Status) bool { return !s.Cluster.Quorum })
	plans.want(nil)
	looks := 0
	nodes[0].Until("it was looked at often", func(s node.Status) bool {
		if s.Node.Role != string(member.Prefill) || s.Planner.Taking != "" {
			t.Fatalf("without a leader the role is %s, then %q: %s", s.Node.Role, s.Planner.Taking, s.Planner.RoleWhy)
		}
		looks++
		return looks > 1000
	})
	for _, n := range nodes {
		ask(t, n, chat("who are you", `,"max_tokens":10`), 200)
	}
	stopNode(t, nodes[1])
	stopNode(t, nodes[2])
	nodes[0].Until("it is hybrid again", func(s node.Status) bool { return s.Node.Role == string(member.Hybrid) })
	if _, head := ask(t, nodes[0], chat("who are you", `,"max_tokens":10`), 200); head.Get("X-Tandem-Node") != "n1" {
		t.Errorf("headers %v", head)
	}
}

// TestRoleOfItsOwner: --role holds against every plan, and advice changes nothing.
func TestRoleOfItsOwner(t *testing.T) {
	plans := &fixedPlans{}
	nodes := planned(t, 3, plans, func(i int, c *node.Config) {
		if i == 0 {
			c.Role = "decode"
		}
	})
	plans.want(map[string]member.Role{"n1": member.Prefill, "n2": member.Prefill, "n3": member.Decode})
	haveRoles(t, nodes, map[string]member.Role{"n1": member.Decode, "n2": member.Prefill, "n3": member.Decode})
	nodes[1].Until("the setting is made", func(node.Status) bool { // a busy machine may be electing a leader
		status, _, _ := nodes[1].Post("/admin/cluster/settings", `{"name":"planner","value":"advise"}`)
		return status == 200
	})
	haveRoles(t, nodes, map[string]member.Role{"n1": member.Decode})
	nodes[2].Until("the advice is told", func(s node.Status) bool {
		return s.Planner.Mode == "advise" && s.Planner.Says != nil && s.Planner.Says.Mode == "advise"
	})
}
