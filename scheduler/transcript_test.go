package scheduler_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// TestTranscripts runs testdata/*.txt: lines that change the state, and "place" lines
// that print a decision. What a decision prints is in the lines after it that begin
// with a tab. README.txt there has the words.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			after := transcript(t, string(before))
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

// script is the state of a transcript.
type script struct {
	state    scheduler.State
	ids      map[string]int
	holdings []scheduler.Holding
	policy   string
}

func transcript(t *testing.T, text string) string {
	s := &script{policy: "cost", ids: map[string]int{}}
	return transcriptOf(t, text, s.do)
}

// transcriptOf runs the lines of a script and puts behind each what it prints, indented;
// such lines, from the run before, are left out.
func transcriptOf(t *testing.T, text string, do func(verb string, words []string) ([]string, error)) string {
	t.Helper()
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		printed, err := do(words[0], words[1:])
		if err != nil {
			t.Fatalf("line %d: %s: %v", n+1, line, err)
		}
		for _, l := range printed {
			out.WriteString("\t" + l + "\n")
		}
	}
	return out.String()
}

func (s *script) do(verb string, words []string) ([]string, error) {
	switch verb {
	case "new":
		*s = script{policy: "cost", ids: map[string]int{}}
	case "policy":
		s.policy = words[0]
	case "disagg":
		s.state.Disagg = scheduler.Disagg(words[0])
	case "source":
		return s.source(words)
	case "transfers":
		s.state.Transfers = words[0] == "on"
	case "node":
		return nil, s.node(words)
	case "link":
		return nil, s.link(words)
	case "hold":
		return nil, s.hold(words)
	case "place":
		return s.place(words)
	default:
		return nil, fmt.Errorf("verb %q", verb)
	}
	return nil, nil
}

func (s *script) id(name string) member.ID {
	if _, ok := s.ids[name]; !ok {
		s.ids[name] = len(s.ids)
	}
	return nodeID(s.ids[name])
}

func (s *script) nameOf(id member.ID) string {
	for name, i := range s.ids {
		if nodeID(i) == id {
			return name
		}
	}
	return string(id)
}

// node makes a node with usual figures, or changes one.
func (s *script) node(words []string) error {
	id := s.id(words[0])
	var n *scheduler.Node
	for i := range s.state.Nodes {
		if s.state.Nodes[i].ID == id {
			n = &s.state.Nodes[i]
		}
	}
	if n == nil {
		s.state.Nodes = append(s.state.Nodes, scheduler.Node{
			ID: id, Name: words[0], State: member.Alive, Role: member.Hybrid,
			Models: []scheduler.Model{{
				Name: "m", Ready: true, Context: 32768, Slots: 4, QueueMax: 16,
				PrefillRate: scheduler.Figure{Value: 1000}, Decode: []scheduler.Pace{{Streams: 1, Ms: 20}, {Streams: 4, Ms: 26}},
				SlotMs: scheduler.Figure{Value: 4000}, RAMRate: scheduler.Figure{Value: 5e9}, DiskRate: scheduler.Figure{Value: 5e8},
			}},
		})
		n = &s.state.Nodes[len(s.state.Nodes)-1]
		if s.state.Entry == "" {
			s.state.Entry = id
		}
	}
	return each(words[1:], func(key, value string) error {
		m := &n.Models[0]
		var err error
		switch key {
		case "state":
			n.State = member.State(value)
		case "role":
			n.Role = member.Role(value)
		case "fixed":
			n.Fixed = value == "yes"
		case "model":
			m.Name = value
		case "ready":
			m.Ready = value == "yes"
		case "load":
			m.LoadMs, err = strconv.ParseFloat(value, 64)
		case "context":
			m.Context, err = strconv.Atoi(value)
		case "slots":
			m.Slots, err = strconv.Atoi(value)
		case "running":
			m.Running, err = strconv.Atoi(value)
		case "queued":
			m.Queued, err = strconv.Atoi(value)
		case "waiting":
			m.Waiting, err = strconv.Atoi(value)
		case "active":
			m.Active, err = strconv.Atoi(value)
		case "sent":
			_, err = fmt.Sscanf(value, "%d/%d", &m.Sent, &m.SentTokens)
		case "age":
			m.LoadAge, err = time.ParseDuration(value)
		case "rate":
			m.PrefillRate.Value, err = strconv.ParseFloat(value, 64)
		case "pace":
			m.Decode, err = paces(value)
		case "mark":
			n.Mark, err = mark(value)
		case "good":
			n.GoodAge, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("key %q", key)
		}
		return err
	})
}

// paces reads "1:20,4:26"; "-": not known.
func paces(text string) (out []scheduler.Pace, err error) {
	for _, part := range strings.Split(text, ",") {
		if part == "-" {
			return nil, nil
		}
		var p scheduler.Pace
		if _, err := fmt.Sscanf(part, "%d:%g", &p.Streams, &p.Ms); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// mark reads "failed/2s": a mark of 5 s, 2 s old.
func mark(text string) (m scheduler.Mark, err error) {
	kind, age, _ := strings.Cut(text, "/")
	m.Term = 5 * time.Second
	m.Kind = map[string]scheduler.MarkKind{"refused": scheduler.Refused, "failed": scheduler.Failed, "full": scheduler.Full}[kind]
	if m.Kind == scheduler.NoMark {
		return m, fmt.Errorf("mark %q", text)
	}
	m.Age, err = time.ParseDuration(age)
	return m, err
}

func each(words []string, do func(key, value string) error) error {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if err := do(key, value); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func (s *script) link(words []string) error {
	l := scheduler.Link{A: s.id(words[0]), B: s.id(words[1])}
	err := each(words[2:], func(key, value string) error {
		x, err := strconv.ParseFloat(value, 64)
		switch key {
		case "goodput":
			l.Goodput.Value = x
		case "rtt":
			l.RTTMs.Value = x
		default:
			err = fmt.Errorf("key %q", key)
		}
		return err
	})
	s.state.Links = append(s.state.Links, l)
	return err
}

func (s *script) hold(words []string) error {
	if words[0] == "nothing" {
		s.holdings = nil
		return nil
	}
	h := scheduler.Holding{Node: s.id(words[0])}
	err := each(words[1:], func(key, value string) error {
		x, err := strconv.ParseFloat(value, 64)
		n := int(x)
		switch key {
		case "resident":
			h.Resident = n
		case "ram":
			h.FromRAM = n
		case "disk":
			h.FromDisk = n
		case "predicted":
			h.Predicted = n
		case "uses":
			h.Uses = x
		default:
			err = fmt.Errorf("key %q", key)
		}
		return err
	})
	h.Run = h.Resident + h.FromRAM + h.FromDisk + h.Predicted
	s.holdings = append(s.holdings, h)
	return err
}

func (s *script) place(words []string) ([]string, error) {
	r := scheduler.Request{Model: "m", BlockTokens: 64, BytesPerToken: 23040, Expected: 100, Holdings: s.holdings}
	scores := false
	err := each(words, func(key, value string) error {
		var err error
		switch key {
		case "tokens":
			r.Tokens, err = strconv.Atoi(value)
		case "expected":
			r.Expected, err = strconv.Atoi(value)
		case "model":
			r.Model = value
		case "seed":
			r.Seed, err = strconv.ParseUint(value, 10, 64)
		case "number":
			r.Number, err = strconv.ParseUint(value, 10, 64)
		case "exclude":
			r.Exclude = append(r.Exclude, s.id(value))
		case "scores":
			scores = true
		default:
			err = fmt.Errorf("key %q", key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	policy, err := scheduler.PolicyByName(s.policy)
	if err != nil {
		return nil, err
	}
	d, err := policy(s.state, r)
	if err != nil {
		return []string{refusal(err)}, nil
	}
	out := []string{d.Reason}
	for _, f := range d.Fetch {
		out = append(out, fmt.Sprintf("fetch blocks %d to %d from %s: %.0f ms against %.0f ms", f.First, f.First+f.Blocks-1, s.nameOf(f.From), f.Ms, f.ComputeMs))
	}
	if d.Cached+d.Compute != r.Tokens || d.Source != d.Node && (len(d.Fetch) != 1 || d.Fetch[0].From != d.Source || !d.Fetch[0].Made) {
		return nil, fmt.Errorf("decision %+v does not add up", d)
	}
	for _, c := range d.Scores {
		switch {
		case c.Why != "":
			out = append(out, fmt.Sprintf("%s: %s", s.nameOf(c.Node), c.Why))
		case scores:
			out = append(out, fmt.Sprintf("%s: %.0f = queue %.0f + forward %.1f + fetch %.0f + prefill %.0f + decode %.0f + harm %.0f + copy %.0f, %d cached",
				s.nameOf(c.Node), c.Cost, c.QueueMs, c.ForwardMs, c.FetchMs, c.PrefillMs, c.DecodeMs, c.HarmMs, c.CopyMs, c.Cached))
		}
	}
	return out, nil
}

// source decides how a node gets a prompt.
func (s *script) source(words []string) ([]string, error) {
	r := scheduler.Request{Model: "m", BlockTokens: 64, BytesPerToken: 23040, Expected: 100, Holdings: s.holdings}
	err := each(words[1:], func(key, value string) (err error) {
		switch key {
		case "tokens":
			r.Tokens, err = strconv.Atoi(value)
		case "bytes":
			r.BytesPerToken, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("key %q", key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	d, err := scheduler.Source(s.state, r, s.id(words[0]))
	if err != nil {
		return []string{refusal(err)}, nil
	}
	out := []string{d.Reason}
	for _, f := range d.Fetch {
		how := "held"
		if f.Made {
			how = "made"
		}
		out = append(out, fmt.Sprintf("blocks %d to %d, %s by %s", f.First, f.First+f.Blocks-1, how, s.nameOf(f.From)))
	}
	return out, nil
}

// refusal tells the kind of an error and its text.
func refusal(err error) string {
	var busy *scheduler.Busy
	var notReady *scheduler.NotReadyError
	var unknown *scheduler.UnknownModelError
	var long *scheduler.TooLongError
	switch {
	case errors.As(err, &busy):
		return "busy: " + err.Error()
	case errors.As(err, &notReady):
		return "not ready: " + err.Error()
	case errors.As(err, &unknown):
		return "unknown: " + err.Error()
	case errors.As(err, &long):
		return "too long: " + err.Error()
	}
	return "error of no kind: " + err.Error()
}
