package sim

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Limits on what is read of a trace.
const (
	lineBytesMax    = 1 << 20
	requestsMax     = 10_000_000
	tokensMax       = 10_000_000
	traceBlockCount = 1 << 16
)

// Arrival is a request of a trace.
type Arrival struct {
	At            time.Duration // since the first one
	Input, Output int           // tokens
	// Blocks name the blocks of the prompt; equal leading names are a shared prefix.
	// None: nothing is known of it.
	Blocks []uint64
}

// ReadMooncake reads lines of JSON with timestamp (ms), input_length, output_length
// and hash_ids.
func ReadMooncake(r io.Reader) ([]Arrival, error) {
	var out []Arrival
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineBytesMax)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Timestamp float64  `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		a := Arrival{At: time.Duration(line.Timestamp * float64(time.Millisecond)), Input: line.Input, Output: line.Output, Blocks: line.Hashes}
		if err := check(a, len(out), n); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, lines.Err()
}

// ReadAzure reads CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.
func ReadAzure(r io.Reader) ([]Arrival, error) {
	var out []Arrival
	var first time.Time
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 3
	for n := 1; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if n == 1 && row[0] == "TIMESTAMP" {
			continue
		}
		at, err := time.Parse("2006-01-02 15:04:05.999999999", row[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(out) == 0 {
			first = at
		}
		input, inputErr := strconv.Atoi(row[1])
		output, outputErr := strconv.Atoi(row[2])
		if err := errors.Join(inputErr, outputErr); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		a := Arrival{At: at.Sub(first), Input: input, Output: output}
		if err := check(a, len(out), n); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
}

func check(a Arrival, requests, line int) error {
	switch {
	case requests >= requestsMax:
		return fmt.Errorf("line %d: more than %d requests", line, requestsMax)
	case a.At < 0:
		return fmt.Errorf("line %d: the time is %v; it must not be before the first one", line, a.At)
	case a.Input < 1 || a.Input > tokensMax || a.Output < 0 || a.Output > tokensMax:
		return fmt.Errorf("line %d: %d and %d tokens; allowed are 1 and 0 to %d", line, a.Input, a.Output, tokensMax)
	case len(a.Blocks) > traceBlockCount:
		return fmt.Errorf("line %d: %d blocks; at most %d", line, len(a.Blocks), traceBlockCount)
	}
	return nil
}
