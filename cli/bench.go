package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tandem/node"
	"tandem/node/api"
)

// What bench measures. Prompts are short so that decoding, not prefill, fills the
// time; rounds alternate between HTTP and the bare loop, so that a noisy machine
// disturbs both alike, and medians are shown.
const (
	benchContext  = 2048
	benchPrompt   = 64 // one KV block
	benchGenerate = 256
	benchPrefill  = 1024
)

var benchStreams = []int{1, 4, 8}

func (a *app) benchCommand() *cobra.Command {
	var rounds int
	var asJSON bool
	cmd := &cobra.Command{Use: "bench", Short: "Measure this machine: rates through HTTP against a bare loop over the engine, TTFT, start, memory", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rounds < 1 || rounds > 100 {
				return usageError{fmt.Errorf("--rounds: %d: is out of range; allowed: 1 to 100", rounds)}
			}
			c, _, err := a.config()
			if err != nil {
				return err
			}
			report, err := a.bench(cmd.Context(), c, rounds)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.env.Out, report)
			}
			return report.print(a)
		}}
	cmd.Flags().IntVar(&rounds, "rounds", 5, "repetitions of each measurement")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// benchReport is what was measured. Rates are in tokens/s, times in seconds.
type benchReport struct {
	Model, Version, Machine string
	Threads, Rounds         int
	Decode                  []benchRate // by streams
	Prefill                 benchRate
	TTFTBlock               benchTimes // HTTP and bare, for a prompt of one KV block
	TTFTCold, TTFTResident  []float64  // for benchPrefill tokens
	StartToReady            float64
	Rates                   node.ModelRates // of the node's self-benchmark
	Outlook                 []node.Outlook  // estimates, of the cost model
	RSSBytes                int64
}

type benchRate struct {
	Streams    int
	HTTP, Bare []float64
}

type benchTimes struct{ HTTP, Bare []float64 }

// bench starts a node of its own as a child process and measures it.
func (a *app) bench(ctx context.Context, c node.Config, rounds int) (*benchReport, error) {
	model, err := a.benchModel(ctx, c)
	if err != nil {
		return nil, err
	}
	c.Context, c.Parallel, c.Models = benchContext, slices.Max(benchStreams), []string{model}
	r := &benchReport{Model: node.ModelName(model), Version: node.Version, Machine: machine(), Rounds: rounds}
	server, err := a.startBenchNode(ctx, c, r)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	fmt.Fprintln(a.env.Err, "self-benchmark ...")
	if r.Rates, err = server.selfBench(ctx); err != nil {
		return nil, err
	}
	r.Outlook = node.Outlooks(r.Rates)

	for _, streams := range benchStreams {
		rate := benchRate{Streams: streams}
		for range rounds {
			fmt.Fprintf(a.env.Err, "decode, %d streams ...\n", streams)
			http, err := server.decodeRate(ctx, streams)
			if err != nil {
				return nil, err
			}
			bare, err := node.Bare(ctx, c, model, node.BareWork{Prompt: benchPrompt, Generate: benchGenerate, Sequences: streams})
			if err != nil {
				return nil, err
			}
			r.Threads = bare.Threads
			rate.HTTP, rate.Bare = append(rate.HTTP, http), append(rate.Bare, bare.Decode)
		}
		r.Decode = append(r.Decode, rate)
	}
	r.Prefill.Streams = 1
	for range rounds {
		fmt.Fprintln(a.env.Err, "prefill and TTFT ...")
		if err := server.measurePrompts(ctx, c, model, r); err != nil {
			return nil, err
		}
	}
	r.RSSBytes, err = server.rss()
	return r, err
}

// benchModel is the reference of the model to measure: the first --model, or the
// one that a node would choose.
func (a *app) benchModel(ctx context.Context, c node.Config) (string, error) {
	if len(c.Models) > 0 {
		return c.Models[0], nil
	}
	var ref string
	err := a.withLibrary(c, func(l api.Library) error {
		models, err := l.List(ctx)
		if err != nil {
			return err
		}
		if len(models) == 0 {
			return errors.New("there is no model on this machine; get one with `tandem pull smollm2:135m`")
		}
		real := slices.IndexFunc(models, func(m api.Model) bool { return m.Source != "built-in" })
		ref = models[max(real, 0)].Name
		return nil
	})
	return ref, err
}

// benchNode is a node in a process of its own.
type benchNode struct {
	cmd    *exec.Cmd
	client *client
	dir    string
	rng    *rand.Rand
	model  string
}

func (a *app) startBenchNode(ctx context.Context, c node.Config, r *benchReport) (*benchNode, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tandem-bench-")
	if err != nil {
		return nil, err
	}
	path, err := node.ModelPath(c, c.Models[0])
	if err != nil {
		return nil, err
	}
	c.Listen, c.APIKeys = "127.0.0.1:"+port, nil
	cmd := exec.CommandContext(ctx, program, "serve", "--data-dir", dir, "--listen", c.Listen, "--model", path, "--log-level", "error",
		"--ctx", strconv.Itoa(c.Context), "--parallel", strconv.Itoa(c.Parallel), "--batch", strconv.Itoa(c.Batch), "--kv-type", c.KVType,
		"--self-bench", "auto", "--threads", strconv.Itoa(c.Threads), "--gpu-layers", strconv.Itoa(c.GPULayers))
	cmd.Stderr = a.env.Err
	start := time.Now()
	if err := cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s := &benchNode{cmd: cmd, client: newClient(c), dir: dir, rng: rand.New(rand.NewPCG(1, 2)), model: node.ModelName(path)}
	for tick := time.NewTicker(2 * time.Millisecond); ; <-tick.C {
		if resp, err := s.client.do(ctx, http.MethodGet, "/readyz", nil); err == nil {
			resp.Body.Close()
			tick.Stop()
			break
		}
		if ctx.Err() != nil || time.Since(start) > 2*time.Minute {
			s.stop()
			return nil, errors.Join(errors.New("the node did not become ready"), ctx.Err())
		}
	}
	r.StartToReady = time.Since(start).Seconds()
	return s, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func (s *benchNode) stop() {
	s.cmd.Process.Signal(os.Interrupt)
	s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// tokens are random ids above those that vocabularies keep for control tokens.
func (s *benchNode) tokens(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 300 + s.rng.IntN(400)
	}
	return out
}

// stream is when each token of one answer came.
type stream struct {
	start  time.Time
	tokens []time.Time
}

func (t stream) ttft() float64 { return t.tokens[0].Sub(t.start).Seconds() }

// complete asks for one answer and notes when each of its events came. It reads the
// connection itself: client and node share the cores that compute, and what a library
// does for each event would count as the node's.
func (s *benchNode) complete(ctx context.Context, prompt []int, generate int) (stream, error) {
	body, err := json.Marshal(map[string]any{"model": s.model, "prompt": prompt, "max_tokens": generate, "temperature": 0, "ignore_eos": true, "stream": true})
	if err != nil {
		return stream{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.client.base+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return stream{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", req.URL.Host)
	if err != nil {
		return stream{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	t := stream{start: time.Now()}
	if err := req.Write(conn); err != nil {
		return t, err
	}
	return t, t.read(conn)
}

// read notes the events of an answer until its end.
func (t *stream) read(conn io.Reader) error {
	const event = "data: {"
	buf, kept, begun := make([]byte, 64<<10), 0, false
	for {
		n, err := conn.Read(buf[kept:])
		now, seen := time.Now(), buf[:kept+n]
		if line, _, whole := bytes.Cut(seen, []byte("\r\n")); whole && !begun {
			if begun = bytes.HasSuffix(line, []byte(" 200 OK")); !begun {
				return fmt.Errorf("the node answered %.200q", seen)
			}
		}
		for range bytes.Count(seen, []byte(event)) {
			t.tokens = append(t.tokens, now)
		}
		switch {
		case errors.Is(err, io.EOF) && len(t.tokens) == 0: // tokens may be parts of one character
			return errors.New("an answer without events")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if begun {
			seen = seen[max(0, len(seen)-len(event)+1):]
		}
		kept = copy(buf, seen)
	}
}

// decodeRate is the rate of several streams together, over the time in which all
// of them decode.
func (s *benchNode) decodeRate(ctx context.Context, streams int) (float64, error) {
	results, errs := make([]stream, streams), make([]error, streams)
	prompts := make([][]int, streams)
	for i := range prompts {
		prompts[i] = s.tokens(benchPrompt)
	}
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() { results[i], errs[i] = s.complete(ctx, prompts[i], benchGenerate) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	var from, to time.Time
	for _, r := range results {
		if len(r.tokens) < 2 {
			return 0, fmt.Errorf("an answer of %d events; a rate needs 2", len(r.tokens))
		}
		if from.Before(r.tokens[0]) {
			from = r.tokens[0]
		}
		if last := r.tokens[len(r.tokens)-1]; to.IsZero() || last.Before(to) {
			to = last
		}
	}
	count := 0
	for _, r := range results {
		for _, at := range r.tokens {
			if at.After(from) && !at.After(to) {
				count++
			}
		}
	}
	return float64(count) / to.Sub(from).Seconds(), nil
}

// measurePrompts measures what happens before the first token, once.
func (s *benchNode) measurePrompts(ctx context.Context, c node.Config, model string, r *benchReport) error {
	block, err := s.complete(ctx, s.tokens(benchPrompt), 2)
	if err != nil {
		return err
	}
	long := s.tokens(benchPrefill)
	cold, err := s.complete(ctx, long, 2)
	if err != nil {
		return err
	}
	again, err := s.complete(ctx, long, 2)
	if err != nil {
		return err
	}
	bareBlock, err := node.Bare(ctx, c, model, node.BareWork{Prompt: benchPrompt, Generate: 1, Sequences: 1})
	if err != nil {
		return err
	}
	bareLong, err := node.Bare(ctx, c, model, node.BareWork{Prompt: benchPrefill, Generate: 1, Sequences: 1})
	if err != nil {
		return err
	}
	r.TTFTBlock.HTTP = append(r.TTFTBlock.HTTP, block.ttft())
	r.TTFTBlock.Bare = append(r.TTFTBlock.Bare, benchPrompt/bareBlock.Prefill)
	r.TTFTCold, r.TTFTResident = append(r.TTFTCold, cold.ttft()), append(r.TTFTResident, again.ttft())
	r.Prefill.HTTP, r.Prefill.Bare = append(r.Prefill.HTTP, benchPrefill/cold.ttft()), append(r.Prefill.Bare, bareLong.Prefill)
	return nil
}

// rss is the resident memory of the node's process.
func (s *benchNode) rss() (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the process has ended")
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// medianRatio compares measurements pair by pair, so that a slow minute does not
// count for one side only.
func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

func (r *benchReport) print(a *app) error {
	fmt.Fprintf(a.env.Out, "%s, tandem %s, %s, %d threads, medians of %d rounds\n", r.Model, r.Version, r.Machine, r.Threads, r.Rounds)
	fmt.Fprintf(a.env.Out, "decode: %d tokens after a prompt of %d; prefill: %d tokens\n\n", benchGenerate, benchPrompt, benchPrefill)
	t := newTable(a.env.Out, "MEASURE", "HTTP", "BARE LOOP", "RATIO")
	rate := func(name string, d benchRate) {
		t.row(name, fmt.Sprintf("%.1f tokens/s", median(d.HTTP)), fmt.Sprintf("%.1f tokens/s", median(d.Bare)), fmt.Sprintf("%.3f", medianRatio(d.HTTP, d.Bare)))
	}
	for _, d := range r.Decode {
		rate(fmt.Sprintf("decode, %d streams", d.Streams), d)
	}
	rate("prefill", r.Prefill)
	ms := func(v []float64) string { return fmt.Sprintf("%.1f ms", median(v)*1000) }
	added := make([]float64, len(r.TTFTBlock.HTTP))
	for i := range added {
		added[i] = r.TTFTBlock.HTTP[i] - r.TTFTBlock.Bare[i]
	}
	t.row("TTFT, prompt of one block", ms(r.TTFTBlock.HTTP), ms(r.TTFTBlock.Bare), "+"+ms(added))
	t.row(fmt.Sprintf("TTFT, %d tokens, cold", benchPrefill), ms(r.TTFTCold), "", "")
	t.row(fmt.Sprintf("TTFT, %d tokens, resident", benchPrefill), ms(r.TTFTResident), "", fmt.Sprintf("1/%.0f of cold", median(r.TTFTCold)/median(r.TTFTResident)))
	t.row("process start to ready", fmt.Sprintf("%.2f s", r.StartToReady), "", "")
	t.row("resident memory", fmt.Sprintf("%d MiB", r.RSSBytes>>20), "", "")
	if err := t.flush(); err != nil {
		return err
	}
	return printRates(a.env.Out, r.Rates, r.Outlook)
}

// machine names the processor.
func machine() string {
	name := runtime.GOARCH
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			name = strings.TrimSpace(v)
			break
		}
	}
	return fmt.Sprintf("%s, %d CPUs", name, runtime.NumCPU())
}
