package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/scheduler"
	"tandem/scheduler/sim"
)

// simFlags are the flags of sim that are no part of a scenario.
type simFlags struct {
	scenario, html, log   string
	each                  string
	json, tables, goodput bool
	regret                int
	share                 float64
	given                 sim.Scenario
	policies, disagg      string
}

func (a *app) simCommand() *cobra.Command {
	var f simFlags
	d := sim.Default()
	cmd := &cobra.Command{Use: "sim", Short: "Simulate nodes that you do not have: policies, links and roles on a trace or a made load", Args: noArgs,
		Long: "sim runs this program's own scheduler and index over models of nodes under virtual time.\n" +
			"One seed is one run. Figures compare ways to place requests; they promise no seconds.\n\n" +
			"  node sim --trace conversation.jsonl --nodes 8xRTX3090,2xcpu --link 10gbit --policy cost,dynamo,round-robin\n" +
			"  node sim --load chat,requests=2000,rate=2 --nodes 2xRTX4090=prefill,2xRTX3090=decode --disagg always,auto --html out.html\n" +
			"  node sim --tables",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sim(cmd.Context(), &f) }}
	fs, g := cmd.Flags(), &f.given
	fs.SortFlags = false
	fs.StringVar(&g.Trace, "trace", "", "a file of requests: "+strings.Join(sim.Formats(), ", "))
	fs.StringVar(&g.Format, "format", "", "of the trace, if its first line does not show it")
	fs.StringVar(&g.Load, "load", "", "a made load instead: "+strings.Join(sim.LoadKinds(), ", ")+"; settings follow: chat,requests=500,rate=2 (default chat)")
	fs.StringVar(&g.Nodes, "nodes", "", "[COUNTx]DEVICE[*DEVICES][@LINK][=ROLE], by comma (default "+d.Nodes+")")
	fs.StringVar(&g.Model, "model", "", "NAME[:q4_k_m|q8_0|fp8|f16][:kv8] (default "+d.Model+")")
	fs.StringVar(&g.Link, "link", "", "line rate of each node (default "+d.Link+")")
	fs.StringVar(&g.RTT, "rtt", "", "round trip between nodes (default "+d.RTT+")")
	fs.StringVar(&f.policies, "policy", "", strings.Join(scheduler.PolicyNames(), ", ")+", or several by comma (default cost)")
	fs.StringVar(&f.disagg, "disagg", "", "auto, always, never, dynamo, or several by comma (default auto)")
	fs.StringVar(&g.Transfers, "transfers", "", "on or off: whether nodes move KV (default on)")
	fs.IntVar(&g.Slots, "slots", 0, fmt.Sprintf("requests at once on a node (default %d)", d.Slots))
	fs.IntVar(&g.Queue, "queue", 0, "requests that may wait on a node (default any number)")
	fs.StringVar(&g.RAM, "ram", "", "memory of each node for kept KV (default "+d.RAM+")")
	fs.StringVar(&g.Disk, "disk", "", "disk of each node for kept KV (default none)")
	fs.StringVar(&g.DiskRate, "disk-rate", "", "bytes a second from that disk (default "+d.DiskRate+")")
	fs.IntVar(&g.Entries, "entries", 0, "nodes that clients talk to (default up to 4)")
	fs.Float64Var(&g.Speed, "speed", 0, "arrivals come so much faster (default 1)")
	fs.IntVar(&g.Limit, "limit", 0, "only the first requests")
	fs.Uint64Var(&g.Seed, "seed", 0, "of everything random (default 1)")
	fs.StringVar(&g.SLO, "slo", "", "times that a request should meet: ttft=500ms,itl=50ms")
	fs.StringVar(&g.Outages, "outages", "", "NODE:[freeze:]FROM-TO, by comma: 0:20s-60s,3:freeze:30s-45s")
	fs.IntVar(&g.Chunk, "chunk", 0, "prompt tokens of a step beside answers (default 512)")
	fs.BoolVar(&g.OneWay, "one-way", false, "nodes that compute prompts for others pull nothing of them")
	fs.StringVar(&g.Steps, "steps", "", "mixed, or apart: prompts stop the answers of a node while they are computed (default mixed)")
	fs.IntVar(&g.BlockToken, "block-tokens", 0, "size of blocks, if the requests do not name any (default 64)")
	fs.StringVar(&f.scenario, "scenario", "", "a file of JSON with any of these settings; flags go before")
	fs.BoolVar(&f.goodput, "goodput", false, "search the highest rate of arrivals at which enough requests meet --slo")
	fs.Float64Var(&f.share, "share", 0.9, "that is enough for --goodput")
	fs.IntVar(&f.regret, "regret", 0, "for so many requests, try every node and way and tell what the choice cost")
	fs.StringVar(&f.html, "html", "", "write a page with plots to this file")
	fs.StringVar(&f.log, "write-log", "", "write the requests to this file as a request log")
	fs.StringVar(&f.each, "each", "", "write how each request fared to this file, as CSV; of several runs the last")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.tables, "tables", false, "print the tables of devices and models")
	return cmd
}

// sim runs what the flags say.
func (a *app) sim(ctx context.Context, f *simFlags) error {
	if f.tables {
		return a.simTables()
	}
	s, o, err := f.options()
	if err != nil {
		return usageError{err}
	}
	if f.log != "" {
		if err := writeFile(f.log, func(w io.Writer) error { return sim.WriteLog(w, o.Arrivals, o.BlockTokens) }); err != nil {
			return err
		}
	}
	switch {
	case f.goodput:
		return a.simGoodput(ctx, f, s, o)
	case f.regret > 0:
		return a.simRegret(ctx, f, s, o)
	}
	var results []sim.Result
	o.Each = f.each != ""
	began := time.Now()
	requests := 0
	err = each(s, o, func(o sim.Options) error {
		r, err := sim.Run(ctx, o)
		results = append(results, r)
		requests += len(o.Arrivals)
		return err
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	if f.each != "" {
		if err := writeFile(f.each, results[len(results)-1].WriteEach); err != nil {
			return err
		}
	}
	if f.html != "" {
		report := sim.Report{Title: "node sim: " + s.Nodes + ", " + s.Model + ", " + s.Link, Command: "node " + strings.Join(a.env.Args, " "), Facts: facts(s, o), Runs: results}
		if err := writeFile(f.html, report.Write); err != nil {
			return err
		}
	}
	if f.json {
		return printJSON(a.env.Out, struct {
			Scenario sim.Scenario
			Results  []sim.Result
		}{s, results})
	}
	if err := sim.Table(a.env.Out, results); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.env.Err, "%d requests in %.1f s of this machine: %.0f a second%s\n", requests, took.Seconds(), float64(requests)/took.Seconds(), spent())
	return err
}

// spent is the processor time and memory of this process, where the system tells.
func spent() string {
	stat, _ := os.ReadFile("/proc/self/stat")
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	_, memory, found := strings.Cut(string(status), "VmHWM:")
	kb := strings.Fields(memory)
	if len(fields) < 13 || !found || len(kb) == 0 {
		return ""
	}
	const ticks = 100 // a second, on all that Linux runs on
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	most, _ := strconv.ParseFloat(kb[0], 64)
	return fmt.Sprintf("; %.1f s of processors, %.0f MB of memory at most", (user+system)/ticks, most*1024/1e6)
}

// options merges flags, the file and defaults, and reads or makes the requests.
func (f *simFlags) options() (sim.Scenario, sim.Options, error) {
	var none sim.Options
	s := f.given
	s.Policies, s.Disagg = list(f.policies), list(f.disagg)
	if f.share <= 0 || f.share > 1 {
		return s, none, fmt.Errorf("share: %g; allowed are more than 0, up to 1", f.share)
	}
	if f.regret < 0 {
		return s, none, fmt.Errorf("regret: %d; allowed are 1 and more", f.regret)
	}
	base := sim.Default()
	if f.scenario != "" {
		file, err := os.Open(f.scenario)
		if err != nil {
			return s, none, fmt.Errorf("scenario: %w", err)
		}
		defer file.Close()
		read, err := sim.ReadScenario(file)
		if err != nil {
			return s, none, err
		}
		base = read.Over(base)
	}
	s = s.Over(base)
	if f.given.Load != "" {
		s.Trace = "" // the one of the file does not count then
	}
	if f.given.Trace != "" && f.given.Load != "" {
		return s, none, errors.New("trace, load: one of them; the other says where requests come from, too")
	}
	arrivals, blockTokens, err := requests(&s)
	if err != nil {
		return s, none, err
	}
	o, err := s.Options(arrivals, blockTokens)
	return s, o, err
}

func list(text string) (out []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// requests reads the trace, or makes the load.
func requests(s *sim.Scenario) ([]sim.Arrival, int, error) {
	if s.Trace != "" {
		file, err := os.Open(s.Trace)
		if err != nil {
			return nil, 0, fmt.Errorf("trace: %w", err)
		}
		defer file.Close()
		arrivals, block, err := sim.Read(bufio.NewReader(file), s.Format)
		if err != nil {
			return nil, 0, fmt.Errorf("trace %s: %w", s.Trace, err)
		}
		return arrivals, block, nil
	}
	if s.Load == "" {
		s.Load = "chat"
	}
	load, err := sim.ParseLoad(s.Load)
	if err != nil {
		return nil, 0, err
	}
	load.Seed = s.Seed
	return load.Make(), load.Block, nil
}

// each calls do for each policy and rule.
func each(s sim.Scenario, o sim.Options, do func(sim.Options) error) error {
	for _, policy := range s.Policies {
		for _, disagg := range s.Disagg {
			o.Policy, o.Disagg = policy, scheduler.Disagg(disagg)
			if err := do(o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) simGoodput(ctx context.Context, f *simFlags, s sim.Scenario, o sim.Options) error {
	var found []sim.GoodputResult
	err := each(s, o, func(o sim.Options) error {
		g, err := sim.FindGoodput(ctx, o, f.share)
		g.At.Policy, g.At.Disagg = o.Policy, string(o.Disagg)
		found = append(found, g)
		return err
	})
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.env.Out, found)
	}
	t := newTable(a.env.Out, "POLICY", "DISAGG", "REQUESTS/S", "A NODE", "SLO MET %", "TTFT P90", "ITL P90", "ANSWER TOKENS/S")
	for _, g := range found {
		t.row(g.At.Policy, g.At.Disagg, fmt.Sprintf("%.3f", g.Rate), fmt.Sprintf("%.3f", g.Rate/float64(len(o.Nodes))), fmt.Sprintf("%.1f", 100*g.At.Met),
			g.At.TTFT.P90.Round(time.Millisecond).String(), g.At.ITL.P90.Round(100*time.Microsecond).String(), fmt.Sprintf("%.0f", g.At.TokenRate))
	}
	return t.flush()
}

func (a *app) simRegret(ctx context.Context, f *simFlags, s sim.Scenario, o sim.Options) error {
	var found []sim.Regret
	err := each(s, o, func(o sim.Options) error {
		r, err := sim.FindRegret(ctx, o, f.regret)
		found = append(found, r)
		return err
	})
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.env.Out, found)
	}
	t := newTable(a.env.Out, "POLICY", "DISAGG", "DECISIONS", "TRIED", "BEST MEAN MS", "REGRET MEAN MS", "P50", "P99", "MORE %", "WITHIN 1 MS", "WAY ONLY MEAN", "P99")
	for _, r := range found {
		t.row(r.Policy, r.Disagg, fmt.Sprint(r.Sampled), fmt.Sprint(r.Tried), fmt.Sprintf("%.0f", r.MeanBestMs), fmt.Sprintf("%.1f", r.MeanMs), fmt.Sprintf("%.1f", r.P50Ms), fmt.Sprintf("%.1f", r.P99Ms),
			fmt.Sprintf("%.1f", 100*r.Share), fmt.Sprint(r.Best), fmt.Sprintf("%.1f", r.WayMeanMs), fmt.Sprintf("%.1f", r.WayP99Ms))
	}
	return t.flush()
}

// simTables prints what --nodes and --model may name.
func (a *app) simTables() error {
	t := newTable(a.env.Out, "DEVICE", "GB", "GB/S", "8B Q4 PROMPT/S", "8B Q4 ANSWER/S", "SOURCE")
	m, err := sim.FindModel("llama-3.1-8b")
	if err != nil {
		return err
	}
	for _, d := range sim.Devices() {
		found, err := sim.FindDevice(d.Name)
		if err != nil {
			return err
		}
		prompt, answer := sim.NewEngine(found, m, 1).Rates()
		t.row(d.Name, fmt.Sprint(d.MemoryGB), fmt.Sprint(d.BandwidthGBs), fmt.Sprintf("%.0f", prompt), fmt.Sprintf("%.1f", answer), d.Source)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.env.Out)
	t = newTable(a.env.Out, "MODEL", "PARAMETERS", "KV BYTES/TOKEN")
	for _, m := range sim.Models() {
		t.row(m.Name, fmt.Sprintf("%.2f B", m.Params/1e9), fmt.Sprint(m.KVBytes()))
	}
	return t.flush()
}

// facts are the conditions of a run, for its page.
func facts(s sim.Scenario, o sim.Options) [][2]string {
	from := s.Load
	if s.Trace != "" {
		from = s.Trace
	}
	all := [][2]string{
		{"Requests", fmt.Sprintf("%d, %s, speed %g", len(o.Arrivals), from, s.Speed)},
		{"Nodes", fmt.Sprintf("%s, %d slots each", s.Nodes, s.Slots)},
		{"Model", fmt.Sprintf("%s, %d bytes of KV a token, blocks of %d tokens", s.Model, o.BytesPerToken, o.BlockTokens)},
		{"Links", fmt.Sprintf("%s, RTT %s, transfers %s", s.Link, s.RTT, s.Transfers)},
		{"Kept KV", fmt.Sprintf("memory %s, disk %s at %s/s, each node", s.RAM, s.Disk, s.DiskRate)},
		{"SLO", s.SLO}, {"Outages", s.Outages}, {"Seed", fmt.Sprint(s.Seed)},
	}
	return slices.DeleteFunc(all, func(f [2]string) bool { return f[1] == "" })
}

func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	return errors.Join(write(out), out.Flush(), file.Close())
}
