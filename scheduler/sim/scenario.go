package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
)

// Scenario is a run in words: what `node sim` takes as flags, or from a file of JSON.
// Empty fields mean what Default says.
type Scenario struct {
	Nodes      string   `json:"nodes,omitempty"` // 8xRTX3090,2xcpu=prefill
	Model      string   `json:"model,omitempty"` // llama-3.1-8b:q4_k_m
	Link       string   `json:"link,omitempty"`  // 10gbit
	RTT        string   `json:"rtt,omitempty"`
	Policies   []string `json:"policies,omitempty"`
	Disagg     []string `json:"disagg,omitempty"`
	Transfers  string   `json:"transfers,omitempty"` // on or off
	Slots      int      `json:"slots,omitempty"`
	Queue      int      `json:"queue,omitempty"`
	RAM        string   `json:"ram,omitempty"` // for kept KV, of each node
	Disk       string   `json:"disk,omitempty"`
	DiskRate   string   `json:"disk_rate,omitempty"`
	Entries    int      `json:"entries,omitempty"`
	Speed      float64  `json:"speed,omitempty"`
	Limit      int      `json:"limit,omitempty"` // only the first requests
	Seed       uint64   `json:"seed,omitempty"`
	SLO        string   `json:"slo,omitempty"`     // ttft=500ms,itl=50ms
	Outages    string   `json:"outages,omitempty"` // 0:20s-60s,3:freeze:30s-45s
	Chunk      int      `json:"chunk,omitempty"`   // prompt tokens of a step beside answers
	Steps      string   `json:"steps,omitempty"`   // mixed or apart: whether prompts and answers share steps
	OneWay     bool     `json:"one_way,omitempty"` // nodes that compute for others pull nothing
	BlockToken int      `json:"block_tokens,omitempty"`
	Load       string   `json:"load,omitempty"`  // chat,requests=500
	Trace      string   `json:"trace,omitempty"` // a file
	Format     string   `json:"format,omitempty"`
}

// Default is what fields mean that are empty.
func Default() Scenario {
	return Scenario{Nodes: "4xRTX3090", Model: "llama-3.1-8b", Link: "10gbit", RTT: "500us", Policies: []string{"cost"}, Disagg: []string{"auto"}, Transfers: "on", Steps: "mixed",
		Slots: 8, RAM: "8GB", Disk: "0", DiskRate: "2GB", Speed: 1, Seed: 1}
}

// scenarioBytesMax bounds a file.
const scenarioBytesMax = 1 << 20

// ReadScenario reads a file of JSON; fields that it does not know are faults.
func ReadScenario(r io.Reader) (Scenario, error) {
	var s Scenario
	dec := json.NewDecoder(io.LimitReader(r, scenarioBytesMax))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("scenario: %w", err)
	}
	return s, nil
}

// Over puts fields of s that are not empty over those of base.
func (s Scenario) Over(base Scenario) Scenario {
	text := func(to *string, from string) {
		if from != "" {
			*to = from
		}
	}
	text(&base.Nodes, s.Nodes)
	text(&base.Model, s.Model)
	text(&base.Link, s.Link)
	text(&base.RTT, s.RTT)
	text(&base.Transfers, s.Transfers)
	text(&base.Steps, s.Steps)
	text(&base.RAM, s.RAM)
	text(&base.Disk, s.Disk)
	text(&base.DiskRate, s.DiskRate)
	text(&base.SLO, s.SLO)
	text(&base.Outages, s.Outages)
	text(&base.Load, s.Load)
	text(&base.Trace, s.Trace)
	text(&base.Format, s.Format)
	if len(s.Policies) > 0 {
		base.Policies = s.Policies
	}
	if len(s.Disagg) > 0 {
		base.Disagg = s.Disagg
	}
	for _, n := range []struct{ to, from *int }{{&base.Slots, &s.Slots}, {&base.Queue, &s.Queue}, {&base.Entries, &s.Entries}, {&base.Limit, &s.Limit}, {&base.Chunk, &s.Chunk}, {&base.BlockToken, &s.BlockToken}} {
		if *n.from != 0 {
			*n.to = *n.from
		}
	}
	base.OneWay = base.OneWay || s.OneWay
	if s.Speed != 0 {
		base.Speed = s.Speed
	}
	if s.Seed != 0 {
		base.Seed = s.Seed
	}
	return base
}

// Options makes the options of a run, with the first policy and rule, of arrivals that
// were read or made. traceBlock is the size of their blocks, 0 if they name none.
func (s Scenario) Options(arrivals []Arrival, traceBlock int) (Options, error) {
	var errs []error
	fault := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	o := Options{Arrivals: arrivals, Speed: s.Speed, Seed: s.Seed, Entries: s.Entries, ChunkBeside: s.Chunk, BlockTokens: traceBlock}
	if s.BlockToken != 0 {
		if traceBlock != 0 && traceBlock != s.BlockToken {
			fault("block-tokens", fmt.Errorf("%d; the trace names blocks of %d tokens", s.BlockToken, traceBlock))
		}
		o.BlockTokens = s.BlockToken
	}
	if o.BlockTokens == 0 {
		o.BlockTokens = 64
	}
	if s.Limit < 0 || s.Slots < 1 || s.Queue < 0 {
		fault("limit, slots, queue", fmt.Errorf("%d, %d, %d; slots must be at least 1, the others not negative", s.Limit, s.Slots, s.Queue))
	} else if s.Limit > 0 {
		o.Arrivals = arrivals[:min(s.Limit, len(arrivals))]
	}
	model, err := FindModel(s.Model)
	fault("model", err)
	o.BytesPerToken = model.KVBytes()
	link, err := ParseLink(s.Link)
	fault("link", err)
	o.RTT, err = time.ParseDuration(s.RTT)
	if err == nil && (o.RTT <= 0 || o.RTT > time.Minute) {
		err = fmt.Errorf("%v; allowed are 1ns to 1m", o.RTT)
	}
	fault("rtt", err)
	ram, err := ParseBytes(s.RAM)
	fault("ram", err)
	disk, err := ParseBytes(s.Disk)
	fault("disk", err)
	diskRate, err := ParseBytes(s.DiskRate)
	fault("disk-rate", err)
	if s.Transfers != "on" && s.Transfers != "off" {
		fault("transfers", fmt.Errorf("%.16q; allowed are on and off", s.Transfers))
	}
	o.Transfers = s.Transfers == "on"
	if s.Steps != "mixed" && s.Steps != "apart" {
		fault("steps", fmt.Errorf("%.16q; allowed are mixed and apart", s.Steps))
	}
	o.OneWay = s.OneWay
	o.Apart = s.Steps == "apart"
	if len(errs) == 0 {
		o.Nodes, err = ParseNodes(s.Nodes, model, NodeSpec{Slots: s.Slots, Queue: s.Queue, LinkBps: link, DiskBps: diskRate,
			RAMTokens: int(ram / float64(o.BytesPerToken)), DiskTokens: int(disk / float64(o.BytesPerToken))})
		fault("nodes", err)
	}
	o.SLO, err = ParseSLO(s.SLO)
	fault("slo", err)
	o.Tuning.ITLMs = inMs(o.SLO.ITL) // 0: the scheduler's own
	o.Outages, err = ParseOutages(s.Outages)
	fault("outages", err)
	for _, name := range s.Policies {
		_, err := scheduler.PolicyByName(name)
		fault("policy", err)
	}
	if len(s.Policies) == 0 || len(s.Disagg) == 0 {
		fault("policy, disagg", errors.New("at least one of each is needed"))
	} else {
		o.Policy, o.Disagg = s.Policies[0], scheduler.Disagg(s.Disagg[0])
	}
	if len(errs) == 0 {
		errs = append(errs, o.filled().validate())
	}
	return o, errors.Join(errs...)
}

// goodputShare is what of a link's line rate KV gets: 1 GbE was measured at 0.894 to
// 0.912 of it.
const goodputShare = 0.9

// ParseLink reads a line rate, 2.5gbit or 100mbit, and gives its goodput in bytes/s.
func ParseLink(text string) (float64, error) {
	low := strings.ToLower(strings.TrimSuffix(strings.ToLower(text), "/s"))
	for _, unit := range []struct {
		name string
		bits float64
	}{{"gbit", 1e9}, {"mbit", 1e6}, {"g", 1e9}} {
		digits, ok := strings.CutSuffix(low, unit.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err == nil && v*unit.bits >= 1e5 && v*unit.bits <= 1e14 {
			return v * unit.bits / 8 * goodputShare, nil
		}
	}
	return 0, fmt.Errorf("%.32q; allowed are rates of 0.1mbit to 100000gbit, like 2.5gbit", text)
}

// ParseBytes reads a size: 0, 512MiB, 20GB.
func ParseBytes(text string) (float64, error) {
	low := strings.ToLower(strings.TrimSpace(text))
	for _, unit := range []struct {
		name string
		size float64
	}{{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"", 1}} {
		if digits, ok := strings.CutSuffix(low, unit.name); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
			if err == nil && v >= 0 && v*unit.size <= 1e15 {
				return v * unit.size, nil
			}
			break
		}
	}
	return 0, fmt.Errorf("%.32q; allowed are sizes of 0 to 1000TB, like 512MiB or 20GB", text)
}

// ParseNodes reads "8xRTX3090,2xcpu=prefill,1xH100*4@100gbit": how many of which
// device, *N of them together in a node, their role, and a link of their own. base has
// what all have in common.
func ParseNodes(text string, m Model, base NodeSpec) ([]NodeSpec, error) {
	var out []NodeSpec
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		spec, rest := base, part
		bad := func(what string) error {
			return fmt.Errorf("%.64q: %s; allowed is [COUNTx]DEVICE[*DEVICES][@LINK][=ROLE], like 8xRTX3090 or 2xH100*4@100gbit=decode", part, what)
		}
		count, devices := 1, 1
		if before, after, ok := strings.Cut(rest, "="); ok {
			rest, spec.Role = before, member.Role(after)
			if spec.Role != member.Hybrid && spec.Role != member.Prefill && spec.Role != member.Decode {
				return nil, bad(fmt.Sprintf("role %.16q is not hybrid, prefill or decode", after))
			}
		}
		if before, after, ok := strings.Cut(rest, "@"); ok {
			link, err := ParseLink(after)
			if err != nil {
				return nil, bad("link " + err.Error())
			}
			rest, spec.LinkBps = before, link
		}
		if before, after, ok := strings.Cut(rest, "*"); ok {
			n, err := strconv.Atoi(after)
			if err != nil || n < 1 || n > 64 {
				return nil, bad(fmt.Sprintf("%.16q devices together are not 1 to 64", after))
			}
			rest, devices = before, n
		}
		if before, after, ok := strings.Cut(rest, "x"); ok {
			if n, err := strconv.Atoi(before); err == nil {
				if n < 1 || n > NodesMax {
					return nil, bad(fmt.Sprintf("%d nodes are not 1 to %d", n, NodesMax))
				}
				rest, count = after, n
			}
		}
		d, err := FindDevice(rest)
		if err != nil {
			return nil, err
		}
		spec.Engine = NewEngine(d, m, devices)
		spec.HostBps = d.HostGBs * 1e9 * float64(devices)
		room := d.MemoryGB*1e9*memoryUsed*float64(devices) - m.WeightBytes()
		if spec.KVTokens = int(room / float64(m.KVBytes())); room <= 0 {
			return nil, bad(fmt.Sprintf("the weights of %s take %.1f GB; %d x %s have %.1f GB for them and KV", m.Name, m.WeightBytes()/1e9, devices, d.Name, d.MemoryGB*memoryUsed*float64(devices)))
		}
		if len(out)+count > NodesMax {
			return nil, fmt.Errorf("more than %d nodes", NodesMax)
		}
		for range count {
			spec.Name = fmt.Sprintf("%s-%d", d.Name, len(out)+1)
			out = append(out, spec)
		}
	}
	return out, nil
}

// ParseSLO reads "ttft=500ms,itl=50ms".
func ParseSLO(text string) (slo SLO, err error) {
	if text == "" {
		return slo, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return slo, fmt.Errorf("%.32q; allowed is ttft=TIME,itl=TIME, like ttft=500ms,itl=50ms", part)
		}
		switch name {
		case "ttft":
			slo.TTFT = d
		case "itl":
			slo.ITL = d
		default:
			return slo, fmt.Errorf("%.32q; allowed are ttft and itl", part)
		}
	}
	return slo, nil
}

// ParseOutages reads "0:20s-60s,3:freeze:30s-45s": the place of a node from 0, and from
// when to when it is dead, or frozen.
func ParseOutages(text string) (out []Outage, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		bad := fmt.Errorf("%.48q; allowed is NODE:[freeze:]FROM-TO, like 0:20s-60s", part)
		node, times, ok := strings.Cut(strings.TrimSpace(part), ":")
		o := Outage{}
		if rest, frozen := strings.CutPrefix(times, "freeze:"); frozen {
			times, o.Frozen = rest, true
		}
		from, to, both := strings.Cut(times, "-")
		if o.Node, err = strconv.Atoi(node); err != nil || !ok || !both {
			return nil, bad
		}
		var fromErr, toErr error
		o.From, fromErr = time.ParseDuration(from)
		o.To, toErr = time.ParseDuration(to)
		if fromErr != nil || toErr != nil || o.From < 0 || o.To <= o.From || o.To > math.MaxInt64/4 {
			return nil, bad
		}
		out = append(out, o)
	}
	return out, nil
}
