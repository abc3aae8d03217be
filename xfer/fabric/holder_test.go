//go:build fabric && linux && cgo

package fabric

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Environment of the tests. FABRIC_TEST_LIBRARY names another libfabric to test, and
// FABRIC_TEST_HOLDER_LIBRARY another one for the second process alone.
const (
	holderProcess = "FABRIC_TEST_HOLDER" // makes the test binary a holder with this provider
	holderBytes   = "FABRIC_TEST_HOLDER_BYTES"
	testLibrary   = "FABRIC_TEST_LIBRARY"
	holderLibrary = "FABRIC_TEST_HOLDER_LIBRARY"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(testLibrary); name != "" {
		loader.name = name
	}
	if provider := os.Getenv(holderProcess); provider != "" {
		if err := hold(provider); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// mapRegion is memory outside the Go heap.
func mapRegion(bytes int) ([]byte, error) {
	return syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// wordAt is what a holder has at an offset that is a multiple of 8.
func wordAt(offset int) uint64 {
	x := uint64(offset) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func fill(region []byte) {
	for i := 0; i+8 <= len(region); i += 8 {
		binary.LittleEndian.PutUint64(region[i:], wordAt(i))
	}
}

// wrongAt finds the first byte that is not what a holder has from an offset on.
func wrongAt(got []byte, offset int) (int, bool) {
	for i := 0; i < len(got); {
		at := offset + i
		if at%8 == 0 && len(got)-i >= 8 {
			if binary.LittleEndian.Uint64(got[i:]) == wordAt(at) {
				i += 8
				continue
			}
		}
		if got[i] != byte(wordAt(at&^7)>>(8*(at%8))) {
			return i, true
		}
		i++
	}
	return 0, false
}

// hold is the main function of the second process: a region full of wordAt, and answers
// to commands on its input.
func hold(provider string) error {
	signal.Ignore(syscall.SIGINT)
	bytes, err := strconv.Atoi(os.Getenv(holderBytes))
	if err != nil {
		return err
	}
	region, err := mapRegion(bytes)
	if err != nil {
		return err
	}
	fill(region)
	e, err := Open(Options{Provider: provider, Address: "127.0.0.1", Region: region})
	if err != nil {
		return err
	}
	local := e.Local()
	in := bufio.NewScanner(os.Stdin)
	for command := "local"; ; command = in.Text() {
		switch command {
		case "rotate":
			if local, err = e.Rotate(); err != nil {
				return err
			}
			fallthrough
		case "local":
			encoded, err := local.AppendBinary(nil)
			if err != nil {
				return err
			}
			fmt.Println(hex.EncodeToString(encoded))
		case "cpu":
			fmt.Println(int64(cpuTime()))
		}
		if !in.Scan() {
			return e.Close()
		}
	}
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// holder is such a process.
type holder struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	local Local
	bytes int
}

func startHolder(t testing.TB, provider string, bytes int) *holder {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderProcess+"="+provider, holderBytes+"="+strconv.Itoa(bytes))
	if name := os.Getenv(holderLibrary); name != "" {
		cmd.Env = append(cmd.Env, testLibrary+"="+name)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Kill()
		cmd.Wait()
		// shm's file of a process that was killed.
		left, _ := filepath.Glob(fmt.Sprintf("/dev/shm/%d:*", cmd.Process.Pid))
		for _, name := range left {
			os.Remove(name)
		}
	})
	h := &holder{cmd: cmd, in: in, lines: bufio.NewScanner(out), bytes: bytes}
	h.local = h.readLocal(t)
	return h
}

func (h *holder) line(t testing.TB) string {
	t.Helper()
	if !h.lines.Scan() {
		t.Fatalf("the holder says nothing: %v", h.lines.Err())
	}
	if why, ok := strings.CutPrefix(h.lines.Text(), "error "); ok {
		t.Fatalf("the holder: %s", why)
	}
	return h.lines.Text()
}

func (h *holder) command(t testing.TB, command string) {
	t.Helper()
	if _, err := fmt.Fprintln(h.in, command); err != nil {
		t.Fatal(err)
	}
}

func (h *holder) readLocal(t testing.TB) Local {
	t.Helper()
	encoded, err := hex.DecodeString(h.line(t))
	if err != nil {
		t.Fatal(err)
	}
	local, err := ParseLocal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return local
}

func (h *holder) cpu(t testing.TB) time.Duration {
	t.Helper()
	h.command(t, "cpu")
	used, err := strconv.ParseInt(h.line(t), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(used)
}

func (h *holder) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := h.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// testProviders are the providers in software that this machine has.
func testProviders(t testing.TB) []string {
	t.Helper()
	infos, err := Providers()
	if errors.Is(err, ErrNoLibrary) {
		t.Skipf("libfabric is not on this machine: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, want := range []string{"tcp", "net", "tcp;ofi_rxm", "shm"} {
		for _, info := range infos {
			if info.Provider == want {
				names = append(names, want)
				break
			}
		}
	}
	if len(names) == 0 {
		t.Skipf("libfabric has no provider in software: %v", infos)
	}
	return names
}

// forProviders runs a test with each.
func forProviders(t *testing.T, run func(t *testing.T, provider string)) {
	for _, provider := range testProviders(t) {
		t.Run(provider, func(t *testing.T) { run(t, provider) })
	}
}

// checksKeys tells whether reads with a wrong key fail.
func checksKeys(provider string) bool { return provider != "shm" }

func openEndpoint(t testing.TB, provider string, bytes int) *Endpoint {
	t.Helper()
	region, err := mapRegion(bytes)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(Options{Provider: provider, Address: "127.0.0.1", Region: region})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			if !t.Skipped() {
				t.Errorf("close: %v", err)
			}
			return // the region may still be written to
		}
		if err := syscall.Munmap(region); err != nil {
			t.Error(err)
		}
	})
	return e
}

func connect(t testing.TB, e *Endpoint, l Local) *Peer {
	t.Helper()
	p, err := e.Connect(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newRandom prints its seed if the test fails.
func newRandom(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FABRIC_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with FABRIC_TEST_SEED=%d go test -tags fabric ./xfer/fabric -run '%s'", seed, t.Name())
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// randomOps are ranges of all sizes and alignments, whose memory does not overlap.
func randomOps(r *rand.Rand, own []byte, remoteBytes int) []Op {
	var ops []Op
	for used := 0; len(ops) < 40; {
		size := r.IntN(3 << 20)
		if r.IntN(2) == 0 {
			size = r.IntN(5000)
		}
		used += r.IntN(100)
		if size > remoteBytes || used+size > len(own) {
			break
		}
		ops = append(ops, Op{Remote: uint64(r.IntN(remoteBytes - size + 1)), Local: own[used : used+size]})
		used += size
	}
	return ops
}

func checkOps(t testing.TB, ops []Op) {
	t.Helper()
	for i, op := range ops {
		if at, wrong := wrongAt(op.Local, int(op.Remote)); wrong {
			t.Fatalf("range %d, %d bytes from %d: byte %d is wrong", i, len(op.Local), op.Remote, at)
		}
	}
}
