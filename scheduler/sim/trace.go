package sim

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits on what is read of a trace. A request of tokensMax would take 1.3 TB of KV with
// a model of 8 billion parameters.
const (
	lineBytesMax    = 1 << 20
	requestsMax     = 10_000_000
	tokensMax       = 10_000_000
	traceBlockCount = 1 << 16
	secondsMax      = 10 * 365 * 24 * 3600
)

// Arrival is a request of a trace.
type Arrival struct {
	At            time.Duration // since the first one
	Input, Output int           // tokens
	// Blocks name the blocks of the prompt; equal leading names are a shared prefix.
	// Nil: nothing is known of it.
	Blocks []uint64
}

// Formats are the names of what Read reads.
func Formats() []string { return []string{"mooncake", "tandem", "azure", "burstgpt"} }

// Detect tells the format of a trace from its first line; "" if it is none.
func Detect(head string) string {
	head = strings.TrimPrefix(head, "\ufeff")
	switch {
	case strings.HasPrefix(head, "{") && strings.Contains(head, `"input_tokens"`):
		return "tandem"
	case strings.HasPrefix(head, "{"):
		return "mooncake"
	case strings.HasPrefix(head, "TIMESTAMP,ContextTokens"):
		return "azure"
	case strings.HasPrefix(head, "Timestamp,"):
		return "burstgpt"
	}
	return ""
}

// Read reads a trace of a named format, or (format "") of the one that its first line
// shows. blockTokens is the size of its blocks, if it names them.
func Read(r io.Reader, format string) (arrivals []Arrival, blockTokens int, err error) {
	in := bufio.NewReaderSize(r, 4096)
	if format == "" {
		head, err := in.Peek(1024)
		if err != nil && len(head) == 0 {
			return nil, 0, fmt.Errorf("the trace is empty: %w", err)
		}
		if format = Detect(string(head)); format == "" {
			return nil, 0, fmt.Errorf("the trace is of no known format: it begins with %.40q; known are %s", head, strings.Join(Formats(), ", "))
		}
	}
	switch format {
	case "mooncake":
		arrivals, err = ReadMooncake(in)
		arrivals, blockTokens = spread(arrivals), 512 // its clock goes by 3 s
	case "tandem":
		arrivals, blockTokens, err = ReadLog(in)
	case "azure":
		arrivals, err = ReadAzure(in)
	case "burstgpt":
		arrivals, err = ReadBurstGPT(in)
		arrivals = spread(arrivals) // its clock goes by 1 s
	default:
		return nil, 0, fmt.Errorf("trace format %.32q; allowed are %s", format, strings.Join(Formats(), ", "))
	}
	if err == nil && len(arrivals) == 0 {
		err = errors.New("the trace has no requests")
	}
	return arrivals, blockTokens, err
}

// ordered puts arrivals in order of time and lets the first one be at 0.
func ordered(list []Arrival) []Arrival {
	slices.SortStableFunc(list, func(a, b Arrival) int { return int(max(-1, min(1, a.At-b.At))) })
	if len(list) > 0 && list[0].At != 0 {
		first := list[0].At
		for i := range list {
			list[i].At -= first
		}
	}
	return list
}

// lines calls do for each line that is not empty.
func lines(r io.Reader, do func(n int, line []byte) error) error {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, lineBytesMax)
	n := 0
	for scan.Scan() {
		n++
		if len(scan.Bytes()) == 0 {
			continue
		}
		if err := do(n, scan.Bytes()); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d has more than %d bytes", n+1, lineBytesMax)
	}
	return scan.Err()
}

// ReadMooncake reads lines of JSON with timestamp (ms), input_length, output_length
// and hash_ids of 512 tokens each.
func ReadMooncake(r io.Reader) ([]Arrival, error) {
	var out []Arrival
	err := lines(r, func(_ int, text []byte) error {
		var line struct {
			Timestamp float64  `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		at, err := seconds("timestamp", line.Timestamp/1000)
		if err != nil {
			return err
		}
		a := Arrival{At: at, Input: line.Input, Output: line.Output, Blocks: line.Hashes}
		out = append(out, a)
		return check(a, len(out))
	})
	return ordered(out), err
}

// logLine is a line of tandem's own request log: what `node sim` needs to play a day
// again. docs/request-log.md describes it; what it does not know it skips, as a log may
// tell more.
type logLine struct {
	At          *float64 `json:"at"` // s, of any clock
	Model       string   `json:"model,omitempty"`
	Input       int      `json:"input_tokens"`
	Output      int      `json:"output_tokens"`
	BlockTokens int      `json:"block_tokens,omitempty"`
	Blocks      []string `json:"blocks,omitempty"` // names of the prompt's blocks, chained
}

// ReadLog reads tandem's own request log, lines of JSON. blockTokens is 0 if no line
// names blocks.
func ReadLog(r io.Reader) (out []Arrival, blockTokens int, err error) {
	names := map[string]uint64{}
	err = lines(r, func(_ int, text []byte) error {
		var line logLine
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		if line.At == nil {
			return errors.New(`"at" is missing: seconds, of any clock`)
		}
		at, err := seconds("at", *line.At)
		if err != nil {
			return err
		}
		a := Arrival{At: at, Input: line.Input, Output: line.Output}
		if len(line.Blocks) > 0 {
			if line.BlockTokens < 1 || line.BlockTokens > blockTokMax || blockTokens != 0 && line.BlockTokens != blockTokens {
				return fmt.Errorf(`"block_tokens" is %d; allowed are 1 to %d, and all lines must have the same`, line.BlockTokens, blockTokMax)
			}
			blockTokens = line.BlockTokens
			a.Blocks = make([]uint64, len(line.Blocks))
			for i, name := range line.Blocks {
				if _, ok := names[name]; !ok {
					names[strings.Clone(name)] = uint64(len(names))
				}
				a.Blocks[i] = names[name]
			}
		}
		out = append(out, a)
		return check(a, len(out))
	})
	return ordered(out), blockTokens, err
}

// WriteLog writes arrivals as tandem's own request log.
func WriteLog(w io.Writer, list []Arrival, blockTokens int) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for _, a := range list {
		at := a.At.Seconds()
		line := logLine{At: &at, Input: a.Input, Output: a.Output}
		if a.Blocks != nil {
			line.BlockTokens = blockTokens
			for _, b := range a.Blocks {
				line.Blocks = append(line.Blocks, strconv.FormatUint(b, 36))
			}
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// table reads CSV whose first line names its columns; do gets those that are wanted.
func table(r io.Reader, wanted []string, do func(fields []string) error) error {
	rows := csv.NewReader(&capped{r: r})
	rows.FieldsPerRecord = -1
	rows.ReuseRecord = true
	var places []int
	fields := make([]string, len(wanted))
	for n := 1; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 1 {
			row[0] = strings.TrimPrefix(row[0], "\ufeff")
			for _, name := range wanted {
				at := slices.Index(row, name)
				if at < 0 {
					return fmt.Errorf("line 1: column %q is missing; it must name %s", name, strings.Join(wanted, ", "))
				}
				places = append(places, at)
			}
			continue
		}
		for i, at := range places {
			if at >= len(row) {
				return fmt.Errorf("line %d: it has %d columns; %q is column %d", n, len(row), wanted[i], at+1)
			}
			fields[i] = strings.TrimSpace(row[at])
		}
		if err := do(fields); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// capped ends with an error where a line has too many bytes: a reader of CSV would keep
// all of it.
type capped struct {
	r    io.Reader
	line int
}

func (c *capped) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	for _, char := range b[:n] {
		if c.line++; char == '\n' {
			c.line = 0
		}
		if c.line > lineBytesMax {
			return 0, fmt.Errorf("a line has more than %d bytes", lineBytesMax)
		}
	}
	return n, err
}

// ReadAzure reads CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.
func ReadAzure(r io.Reader) ([]Arrival, error) {
	var out []Arrival
	var first time.Time
	err := table(r, []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, func(f []string) error {
		at, err := time.Parse("2006-01-02 15:04:05.999999999", strings.TrimSuffix(f[0], "+00:00"))
		if err != nil {
			return err
		}
		if len(out) == 0 {
			first = at
		}
		since, err := seconds("TIMESTAMP, since the first,", at.Sub(first).Seconds())
		if err != nil {
			return err
		}
		if math.Abs(at.Sub(first).Seconds()) < secondsMax {
			since = at.Sub(first)
		}
		a, err := counts(f[1], f[2])
		a.At = since
		out = append(out, a)
		return errors.Join(err, check(a, len(out)))
	})
	return ordered(out), err
}

// ReadBurstGPT reads CSV with the columns Timestamp (s), Request tokens and Response
// tokens. Rows without tokens are requests that failed; they are left out.
func ReadBurstGPT(r io.Reader) ([]Arrival, error) {
	var out []Arrival
	err := table(r, []string{"Timestamp", "Request tokens", "Response tokens"}, func(f []string) error {
		at, err := strconv.ParseFloat(f[0], 64)
		if err != nil {
			return fmt.Errorf("column Timestamp: %w", err)
		}
		since, err := seconds("Timestamp", at)
		if err != nil {
			return err
		}
		a, err := counts(f[1], f[2])
		if err != nil {
			return err
		}
		if a.Input == 0 || a.Output == 0 {
			return nil
		}
		a.At = since
		out = append(out, a)
		return check(a, len(out))
	})
	return ordered(out), err
}

func counts(input, output string) (Arrival, error) {
	in, inErr := strconv.Atoi(input)
	out, outErr := strconv.Atoi(output)
	return Arrival{Input: in, Output: out}, errors.Join(inErr, outErr)
}

// seconds makes a time of a number; NaN is none, either.
func seconds(name string, s float64) (time.Duration, error) {
	if !(math.Abs(s) <= secondsMax) {
		return 0, fmt.Errorf("%s is %g s; allowed are up to %d", name, s, secondsMax)
	}
	return time.Duration(s * float64(time.Second)), nil
}

func check(a Arrival, requests int) error {
	switch {
	case requests > requestsMax:
		return fmt.Errorf("more than %d requests", requestsMax)
	case a.Input < 1 || a.Input > tokensMax || a.Output < 0 || a.Output > tokensMax:
		return fmt.Errorf("%d tokens of prompt and %d of answer; allowed are 1 and 0 to %d", a.Input, a.Output, tokensMax)
	case len(a.Blocks) > traceBlockCount:
		return fmt.Errorf("%d blocks; at most %d", len(a.Blocks), traceBlockCount)
	}
	return nil
}
