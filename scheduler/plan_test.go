package scheduler_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
)

// TestPlanTranscripts runs testdata/plan/*.txt: lines that change what a planner sees,
// and "run" lines, which print every change of the plan and how it stands at the end.
// README.md there has the words.
func TestPlanTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/plan/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d transcripts: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			after := planTranscript(t, string(before))
			if *update {
				if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if after != string(before) {
				t.Errorf("it differs; -update writes it, then read the diff. It would be:\n%s", after)
			}
		})
	}
}

// planScript is what a planner sees, and the planner.
type planScript struct {
	in      scheduler.PlanInput
	planner *scheduler.Planner
	ids     map[string]member.ID
	rps     float64
	load    scheduler.PlanLoad // of one request
	ttft    float64            // 0: as forecast
	itl     float64
	stuck   map[member.ID]bool
	last    scheduler.Verdict
	changes int
}

func newPlanScript() *planScript {
	return &planScript{planner: scheduler.NewPlanner(0), ids: map[string]member.ID{}, stuck: map[member.ID]bool{},
		in: scheduler.PlanInput{Transfers: true, BlockTokens: 64, BytesPerToken: 131072, TTFTMs: 500, ITLMs: 50, Roles: map[member.ID]member.Role{}}}
}

func planTranscript(t *testing.T, text string) string {
	return transcriptOf(t, text, newPlanScript().do)
}

func (s *planScript) do(verb string, words []string) ([]string, error) {
	switch verb {
	case "node":
		return nil, s.node(words)
	case "forget":
		s.in.Nodes = slices.DeleteFunc(s.in.Nodes, func(n scheduler.PlanNode) bool { return n.Name == words[0] })
	case "wire":
		goodput, err := strconv.ParseFloat(words[0], 64)
		s.in.Links = nil
		for _, a := range s.in.Nodes {
			for _, b := range s.in.Nodes {
				if a.ID < b.ID {
					s.in.Links = append(s.in.Links, scheduler.Link{A: a.ID, B: b.ID, Goodput: scheduler.Figure{Value: goodput}, RTTMs: scheduler.Figure{Value: 0.3}})
				}
			}
		}
		return nil, err
	case "bytes":
		var err error
		s.in.BytesPerToken, err = strconv.Atoi(words[0])
		return nil, err
	case "slo":
		_, err := fmt.Sscanf(strings.Join(words, " "), "%g %g", &s.in.TTFTMs, &s.in.ITLMs)
		return nil, err
	case "load":
		s.ttft, s.itl = 0, 0
		return nil, each(words, func(key, value string) error {
			x, err := strconv.ParseFloat(value, 64)
			at := map[string]*float64{"rps": &s.rps, "prompt": &s.load.PromptTokens, "cached": &s.load.CachedTokens, "answer": &s.load.AnswerTokens, "ttft": &s.ttft, "itl": &s.itl}[key]
			if at == nil {
				return fmt.Errorf("key %q", key)
			}
			*at = x
			return err
		})
	case "new":
		*s = *newPlanScript()
	case "leader":
		s.planner = scheduler.NewPlanner(s.in.Now)
	case "run":
		d, err := time.ParseDuration(words[0])
		if err != nil {
			return nil, err
		}
		return s.run(d), nil
	default:
		return nil, fmt.Errorf("verb %q", verb)
	}
	return nil, nil
}

func (s *planScript) node(words []string) error {
	id, ok := s.ids[words[0]]
	if !ok {
		id = nodeID(len(s.ids))
		s.ids[words[0]] = id
		s.in.Nodes = append(s.in.Nodes, scheduler.PlanNode{ID: id, Name: words[0], State: member.Alive, Role: member.Hybrid, Model: scheduler.Model{
			Name: "m", Ready: true, Slots: 8, PrefillRate: scheduler.Figure{Value: 4000}, PrefillContext: 30000,
			Decode: []scheduler.Pace{{Streams: 1, Ms: 20}, {Streams: 8, Ms: 28}}, DecodeContext: 40000, RAMRate: scheduler.Figure{Value: 5e9}}})
	}
	at := slices.IndexFunc(s.in.Nodes, func(n scheduler.PlanNode) bool { return n.ID == id })
	n := &s.in.Nodes[at]
	return each(words[1:], func(key, value string) (err error) {
		switch key {
		case "rate":
			n.Model.PrefillRate.Value, err = strconv.ParseFloat(value, 64)
		case "pace":
			n.Model.Decode, err = paces(value)
		case "state":
			n.State = member.State(value)
		case "age":
			n.Age, err = time.ParseDuration(value)
		case "waiting":
			n.Model.Waiting, err = strconv.Atoi(value)
		case "role":
			n.Role, n.Fixed = member.Role(value), true
		case "stuck":
			s.stuck[id] = value == "yes"
		default:
			err = fmt.Errorf("key %q", key)
		}
		return err
	})
}

// step is one step of the planner, and what nodes make of it.
func (s *planScript) step() {
	const seconds = 5
	n := s.rps * seconds
	l := scheduler.PlanLoad{Requests: n, PromptTokens: n * s.load.PromptTokens, CachedTokens: n * s.load.CachedTokens, AnswerTokens: n * s.load.AnswerTokens}
	ttft, itl := s.ttft, s.itl
	s.in.Now += scheduler.PlanEvery
	if s.in.Load = l; ttft == 0 { // what another planner expects of these roles, which has seen nothing that it would correct
		f := scheduler.NewPlanner(s.in.Now).Step(s.in).Forecast
		ttft, itl = f.TTFTMs, f.ITLMs
	}
	if ttft > 0 {
		l.TTFTs, l.TTFTMs, l.ITLs, l.ITLMs = n, n*ttft, n*s.load.AnswerTokens, n*s.load.AnswerTokens*itl
	}
	s.in.Load = l
	s.last = s.planner.Step(s.in)
	if !s.last.Change {
		return
	}
	s.changes++
	s.in.Roles = maps.Clone(s.last.Roles)
	for i := range s.in.Nodes {
		if node := &s.in.Nodes[i]; !node.Fixed && !s.stuck[node.ID] && node.Age == 0 {
			node.Role = member.Hybrid
			if r, ok := s.in.Roles[node.ID]; ok {
				node.Role = r
			}
		}
	}
}

func (s *planScript) run(d time.Duration) (out []string) {
	show := func(what string) {
		f := s.last.Forecast
		out = append(out, fmt.Sprintf("%v %s: %s", s.in.Now, what, strings.Join(s.last.Reasons, "; ")))
		if f.TTFTMs > 0 {
			out = append(out, fmt.Sprintf("  forecast (%s): %.2f requests/s, %.0f ms to the first token, %.0f ms a token, %.0f %% busy, needs %d for prompts, %d for answers",
				f.Predictor, f.RequestsPerSecond, f.TTFTMs, f.ITLMs, f.Utilisation*100, f.PrefillNeeded, f.DecodeNeeded))
		}
	}
	for end := s.in.Now + d; s.in.Now < end; {
		s.step()
		switch {
		case s.last.Rollback:
			show("rolled back")
		case s.last.Change:
			show("change")
		}
	}
	// What the last throughput loop said is of interest, not that the plan still holds.
	for range 36 {
		if !strings.HasSuffix(s.last.Reasons[0], ": as planned") {
			break
		}
		s.step()
	}
	if !s.last.Change {
		show("stays")
	}
	return out
}

// Equal inputs give equal verdicts.
func TestPlannerRepeats(t *testing.T) {
	runOnce := func() (all []scheduler.Verdict) {
		s := newPlanScript()
		for i := range 6 {
			if err := s.node([]string{fmt.Sprintf("n%d", i), fmt.Sprintf("rate=%d", 1000+500*i)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.do("wire", []string{"1.1e9"}); err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			s.rps, s.load.PromptTokens, s.load.AnswerTokens = 1+float64(i%100)/50, float64(500+i%7*500), 100
			s.step()
			all = append(all, s.last)
		}
		return all
	}
	if a, b := runOnce(), runOnce(); !reflect.DeepEqual(a, b) {
		t.Error("two runs of the same differ")
	}
}

// Load that swings between two kinds does not make nodes swing with it: roles change at
// most some times an hour, whatever the period.
func TestPlannerDoesNotOscillate(t *testing.T) {
	for _, period := range []time.Duration{10 * time.Second, time.Minute, 3 * time.Minute, 6 * time.Minute, 10 * time.Minute} {
		t.Run(period.String(), func(t *testing.T) {
			s := newPlanScript()
			for i := range 4 {
				if err := s.node([]string{fmt.Sprintf("n%d", i)}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.do("wire", []string{"5e9"}); err != nil {
				t.Fatal(err)
			}
			const hours = 6
			changed := 0
			for s.in.Now < hours*time.Hour {
				if s.in.Now/period%2 == 0 {
					s.rps, s.load.PromptTokens, s.load.AnswerTokens = 1.2, 9000, 200
				} else {
					s.rps, s.load.PromptTokens, s.load.AnswerTokens = 2, 200, 300
				}
				before := maps.Clone(s.in.Roles)
				s.step()
				for _, n := range s.in.Nodes {
					if s.last.Change && before[n.ID] != s.in.Roles[n.ID] {
						changed++
					}
				}
			}
			t.Logf("%.1f plans and %.1f role changes an hour", float64(s.changes)/hours, float64(changed)/hours)
			if s.changes > 4*hours {
				t.Errorf("%d plans in %d hours; allowed are 4 an hour", s.changes, hours)
			}
		})
	}
}

// A forecast never gets better with more load, and nothing that peers tell makes it
// anything but a number.
func TestPlannerBearsNonsense(t *testing.T) {
	nonsense := []float64{0, -1, 1e-300, 1e300, math.Inf(1), math.Inf(-1), math.NaN()}
	for _, x := range nonsense {
		for _, y := range nonsense {
			s := newPlanScript()
			for i := range 3 {
				if err := s.node([]string{fmt.Sprintf("n%d", i)}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.do("wire", []string{"1e9"}); err != nil {
				t.Fatal(err)
			}
			m := &s.in.Nodes[1].Model
			m.PrefillRate.Value, m.PrefillContext, m.DecodeContext, m.RAMRate.Value = x, y, x, y
			m.Decode, m.Waiting, m.Slots = []scheduler.Pace{{Streams: 1, Ms: x}, {Streams: 4, Ms: y}}, -5, -1
			s.in.Links[0].Goodput.Value, s.in.Links[1].RTTMs.Value = x, y
			for i := range 120 {
				s.rps, s.load.PromptTokens, s.load.AnswerTokens = 3, 4000, 100
				s.step()
				if i%10 == 0 {
					s.in.Load = scheduler.PlanLoad{Requests: x, PromptTokens: y, CachedTokens: x, AnswerTokens: y, TTFTMs: x, TTFTs: y, ITLMs: y, ITLs: x}
					s.last = s.planner.Step(s.in)
				}
				if f := s.last.Forecast; math.IsNaN(f.TTFTMs+f.ITLMs+f.Utilisation) || math.IsInf(f.TTFTMs+f.ITLMs+f.Utilisation, 0) || f.TTFTMs < 0 {
					t.Fatalf("%g, %g: forecast %+v", x, y, f)
				}
				floor(t, s)
			}
		}
	}
}

// floor checks that a split plan has a node of each kind.
func floor(t *testing.T, s *planScript) {
	t.Helper()
	count := map[member.Role]int{}
	for _, r := range s.last.Roles {
		count[r]++
	}
	if (count[member.Prefill] == 0) != (count[member.Decode] == 0) {
		t.Fatalf("plan %v: one side is empty", s.last.Roles)
	}
}

func TestOwnRole(t *testing.T) {
	self, other, third := nodeID(0), nodeID(1), nodeID(2)
	alive := func(id member.ID, r member.Role) member.Member {
		return member.Member{ID: id, State: member.Alive, Role: r}
	}
	plan := map[member.ID]member.Role{self: member.Prefill, other: member.Decode}
	gone := alive(other, member.Decode)
	gone.State = member.Failed
	for _, tt := range []struct {
		name     string
		fixed    member.Role
		plan     map[member.ID]member.Role
		others   []member.Member
		measured bool
		want     member.Role
	}{
		{"as planned", "", plan, []member.Member{alive(other, member.Hybrid)}, true, member.Prefill},
		{"its owner's word", member.Decode, plan, nil, true, member.Decode},
		{"no plan", "", nil, []member.Member{alive(other, member.Decode)}, true, member.Hybrid},
		{"nobody answers any more", "", plan, []member.Member{gone}, true, member.Hybrid},
		{"somebody else does by its owner's word", "", map[member.ID]member.Role{self: member.Prefill}, []member.Member{gone, alive(third, member.Decode)}, true, member.Prefill},
		{"it does not know its rates", "", plan, []member.Member{alive(other, member.Decode)}, false, member.Hybrid},
	} {
		if got, why := scheduler.OwnRole(self, tt.fixed, tt.plan, tt.others, tt.measured); got != tt.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", tt.name, got, why, tt.want)
		}
	}
}
