package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"tandem/node"
	"tandem/node/calc"
)

// calcFlags are what `calc` takes beside the settings of a node.
type calcFlags struct {
	tokens, boxes           int
	prefillRate, decodeRate float64
	weightBits, rttMs       float64
	links                   []float64
	goodput, memory         []string
	weights                 string
	asJSON                  bool
}

func (a *app) calcCommand() *cobra.Command {
	var f calcFlags
	cmd := &cobra.Command{Use: "calc [MODEL|FILE.gguf|config.json]", Short: "Work out what a model takes: KV, transfers, memory, ways to spread it over boxes",
		Long: "calc works out, without loading anything, how many bytes of KV a token takes, how long they\n" +
			"travel over links of several rates, from which prompt on fetching beats computing, whether the\n" +
			"model fits, and what each way to spread it over boxes sends. It reads the header of a GGUF, or\n" +
			"a config.json of Hugging Face. --ctx, --parallel, --batch and --kv-type say how it is to run.\n" +
			"docs/calc.md has the formulas and where the figures are from.",
		Args: exactArgs(0, 1, "one model name, .gguf file or config.json"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, _, err := a.config()
			if err != nil {
				return err
			}
			box := ""
			if have := node.MachineMemory(); len(f.memory) == 0 && have > 0 {
				f.memory, box = []string{strconv.FormatInt(have, 10)}, "this machine, "
			}
			r, err := a.calculate(c, &f, args)
			if err != nil {
				return err
			}
			if f.asJSON {
				return printJSON(a.env.Out, r)
			}
			return printCalc(a.env.Out, r, box)
		}}
	fs := cmd.Flags()
	fs.IntVar(&f.tokens, "tokens", 0, "tokens of the prompt; 0 is the context")
	fs.Float64SliceVar(&f.links, "link", nil, "rate of a link in Gbit/s; may be repeated; without: 1, 2.5, 10, 25, 100, 400")
	fs.StringArrayVar(&f.goodput, "goodput", nil, "bytes/s that a link of yours carries (280MB), as doctor measures; may be repeated")
	fs.Float64Var(&f.rttMs, "rtt-ms", 0, "round trip of the links in ms; 0 is 0.2, and 0.02 above 10 Gbit/s")
	fs.Float64Var(&f.prefillRate, "prefill-rate", 0, "prompt tokens/s that one box computes, as bench measures; 0 is not known")
	fs.Float64Var(&f.decodeRate, "decode-rate", 0, "tokens/s of one answer on one box; 0 is not known")
	fs.StringArrayVar(&f.memory, "memory", nil, "memory of a box (24GiB); may be repeated, once for each; one stands for all; without: this machine's")
	fs.IntVar(&f.boxes, "boxes", 0, "boxes to spread the model over; 0 is one for each --memory, at least 2")
	fs.StringVar(&f.weights, "weights", "", "size of the weights (4.9GB), where a config.json does not say it")
	fs.Float64Var(&f.weightBits, "weight-bits", 0, "bits of one weight, for the size of the weights of a config.json; 0 is what the file says")
	fs.BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

// calculate reads the model and answers.
func (a *app) calculate(c node.Config, f *calcFlags, args []string) (*calc.Report, error) {
	m, err := a.calcModel(c, args)
	if err != nil {
		return nil, err
	}
	switch {
	case f.weightBits < 0 || f.weightBits > 64:
		return nil, usageError{fmt.Errorf("--weight-bits: %v is out of range; allowed: 0 to 64", f.weightBits)}
	case f.weightBits > 0:
		m.WeightBits, m.WeightBytes = f.weightBits, int64(float64(m.Parameters)*f.weightBits/8)
	}
	if f.weights != "" {
		n, err := parseSizes("weights", []string{f.weights}, calc.MaxWeights)
		if err != nil {
			return nil, err
		}
		m.WeightBytes = n[0]
	}
	q := calc.Question{KVType: c.KVType, Tokens: f.tokens, Context: c.Context, Sequences: c.Parallel, MicroBatch: min(c.Batch, node.MicroBatch),
		PrefillRate: f.prefillRate, DecodeRate: f.decodeRate, Boxes: f.boxes}
	if q.Tokens == 0 {
		q.Tokens = q.Context
	}
	if q.Memory, err = parseSizes("memory", f.memory, calc.MaxMemory); err != nil {
		return nil, err
	}
	goodput, err := parseSizes("goodput", f.goodput, calc.MaxGbit*1e9/8)
	if err != nil {
		return nil, err
	}
	if len(f.links) > 0 || len(goodput) == 0 {
		q.Links = calc.Links(f.links)
	}
	for _, g := range goodput {
		q.Links = append(q.Links, calc.Link{Goodput: float64(g), Basis: "given"})
	}
	for i := range q.Links {
		q.Links[i].RTTMs = f.rttMs
	}
	r, err := calc.Answer(m, q)
	var field *calc.FieldError
	if errors.As(err, &field) {
		return nil, usageError{fmt.Errorf("--%s", strings.ReplaceAll(field.Error(), "_", "-"))}
	}
	return r, err
}

func parseSizes(flag string, texts []string, most uint64) ([]int64, error) {
	var out []int64
	for _, t := range texts {
		n, err := humanize.ParseBytes(t)
		if err != nil || n < 1 || n > most {
			return nil, usageError{fmt.Errorf("--%s: %q: allowed: a size such as 512MiB or 20GB, up to %s", flag, t, humanize.IBytes(most))}
		}
		out = append(out, int64(n))
	}
	return out, nil
}

// calcModel reads what is named: a config.json, a GGUF, a model of this machine, or
// without a name the model that a node would serve.
func (a *app) calcModel(c node.Config, args []string) (*calc.Model, error) {
	ref := ""
	if len(args) > 0 {
		ref = args[0]
	} else if len(c.Models) > 0 {
		ref = c.Models[0]
	}
	if !strings.HasSuffix(ref, ".json") {
		return node.CalcModel(c, ref)
	}
	file, err := os.Open(ref)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, calc.MaxConfigBytes+1))
	if err != nil {
		return nil, err
	}
	m, err := calc.FromConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	if m.Name == "" {
		m.Name = ref
	}
	return m, nil
}

func printCalc(out io.Writer, r *calc.Report, box string) error {
	if err := printCalcModel(out, r, box); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nKV of %d tokens over a link\n", r.KV.Tokens)
	differs := r.KV.Bytes != r.KV.EngineBytes
	head := []string{"LINK", "GOODPUT", "TAKES", "FETCH IF A BOX COMPUTES", "VERDICT"}
	if differs {
		head = append(head[:3:3], append([]string{"TAKES HERE"}, head[3:]...)...)
	}
	t := newTable(out, head...)
	for i, l := range r.Links {
		row := []string{r.Splits[i].Link, humanize.SIWithDigits(l.Goodput, 1, "B/s"), duration(l.Seconds), fewer(l.PrefillRateMax), l.Verdict}
		if differs {
			row = append(row[:3:3], append([]string{duration(l.EngineSeconds)}, row[3:]...)...)
		}
		t.row(row...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nSpread over %d boxes: what one token of an answer sends and waits\n", r.Splits[0].Boxes)
	t = newTable(out, "LINK", "PIPELINE", "TENSOR", "EXPERT", "CHOOSE")
	for _, s := range r.Splits {
		t.row(s.Link, cost(s.Pipeline), cost(s.Tensor), cost(s.Expert), s.Choose)
	}
	if err := t.flush(); err != nil {
		return err
	}
	last := ""
	fmt.Fprintln(out)
	for _, s := range r.Splits {
		if s.Choose != last {
			fmt.Fprintf(out, "%s: %s: %s\n", s.Link, s.Choose, s.Reason)
		}
		last = s.Choose
	}
	last = ""
	for i, l := range r.Links {
		if l.Basis != last {
			fmt.Fprintf(out, "goodput from %s on: %s\n", r.Splits[i].Link, l.Basis)
		}
		last = l.Basis
	}
	return nil
}

// printCalcModel prints what was read, and what it takes in memory. box goes before the
// memory of a box.
func printCalcModel(out io.Writer, r *calc.Report, box string) error {
	m := &r.Model
	t := newTable(out, "model", m.Name)
	t.row("architecture", fmt.Sprintf("%s, attention %s, %d layers%s", m.Architecture, m.Attention, m.Layers, layerKinds(m)))
	if m.Experts > 0 {
		t.row("experts", fmt.Sprintf("%d of %d for a token", m.ExpertsUsed, m.Experts))
	}
	if m.WeightBytes > 0 {
		t.row("weights", fmt.Sprintf("%s, %s of %.3g bits", humanize.IBytes(uint64(m.WeightBytes)), humanize.Comma(m.Parameters), m.WeightBits))
	} else {
		t.row("weights", "not known; --weights says how large they are")
	}
	per := fmt.Sprintf("%s bytes of %s", humanize.Comma(int64(r.KV.BytesPerToken)), r.KV.Type)
	if r.KV.BytesPerTokenLong != r.KV.BytesPerToken {
		per += fmt.Sprintf(", %s beyond the window", humanize.Comma(int64(r.KV.BytesPerTokenLong)))
	}
	if r.KV.EngineBytesToken != r.KV.BytesPerToken || r.KV.Difference != "" {
		per += fmt.Sprintf("; %s here", humanize.Comma(int64(r.KV.EngineBytesToken)))
	}
	t.row("KV of a token", per)
	if r.KV.StateBytes > 0 {
		t.row("state", humanize.IBytes(uint64(r.KV.StateBytes))+" for each sequence, whatever its length")
	}
	if r.KV.Difference != "" {
		t.row("here", r.KV.Difference)
	}
	n := &r.Memory
	t.row("memory", fmt.Sprintf("%s for %d times %d tokens: weights %s, KV %s, buffers %s; %s", humanize.IBytes(uint64(n.Total)), n.Sequences, n.Context,
		humanize.IBytes(uint64(n.Weights)), humanize.IBytes(uint64(n.KV)), humanize.IBytes(uint64(n.Compute)), n.Verdict))
	for _, b := range n.Boxes {
		fits := "does not fit"
		if b.Fits {
			fits = "fits"
		}
		t.row(cmp.Or(box, "box of ")+humanize.IBytes(uint64(b.Memory)), fmt.Sprintf("%s; context at most %d", fits, b.ContextMax))
	}
	return t.flush()
}

// layerKinds says what kinds of layers there are, if more than one.
func layerKinds(m *calc.ModelReport) string {
	var parts []string
	for _, k := range []struct {
		n    int
		what string
	}{{m.FullLayers, "see all tokens"}, {m.WindowLayers, fmt.Sprintf("see the last %d", m.Window)}, {m.RecurrentLayers, "are recurrent"}} {
		if k.n > 0 && k.n < m.Layers {
			parts = append(parts, fmt.Sprintf("%d %s", k.n, k.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// cost is one way to spread a model, in a cell.
func cost(c calc.SplitCost) string {
	if !c.Possible {
		return "no: " + c.Why
	}
	return fmt.Sprintf("%s, %s", humanize.IBytes(uint64(c.BytesPerToken)), duration(c.DecodeMs/1000))
}

func fewer(rate float64) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf("fewer than %s tokens/s", humanize.Comma(int64(rate)))
}

func duration(seconds float64) string {
	switch {
	case seconds < 0.001:
		return fmt.Sprintf("%.0f us", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1000)
	}
	return fmt.Sprintf("%.3g s", seconds)
}
