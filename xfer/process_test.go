//go:build unix

package xfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// peerProcess in the environment makes the test binary a node that answers until
// its input ends.
const peerProcess = "XFER_TEST_PEER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(peerProcess); mode != "" {
		runPeer(mode)
		return
	}
	os.Exit(m.Run())
}

// runPeer is the main function of another process: node 2 with the real timings.
func runPeer(mode string) {
	tb := &testing.T{} // for the helpers; they do not fail
	book := &addressBook{}
	cfg := Config{Self: nodeID(2), Identity: newTestIdentity(tb, "secret", nodeID(2)), Listen: os.Getenv("XFER_TEST_LISTEN"), Address: book.get,
		Cluster: "cluster-a", Program: "test", TCPOnly: mode == "tcp", ResetKey: &[32]byte{1},
		Handlers: map[string]Handler{"echo": echoMessages, "pour": pouring, "wait": func(ctx context.Context, s *Stream) error { <-ctx.Done(); return nil }}}
	l, err := Listen(cfg)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("listening", l.Addr())
	io.Copy(io.Discard, os.Stdin)
}

// startPeer starts such a process and returns where it listens.
func startPeer(t *testing.T, kind Transport, listen string) (cmd *exec.Cmd, addr string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerProcess+"="+string(kind), "XFER_TEST_LISTEN="+listen)
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
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if !ok {
		t.Fatalf("the peer says %q, %v", line, err)
	}
	return cmd, addr
}

// A peer that is frozen or killed is noticed within five seconds with the real
// timings, by streams that wait and by streams that write.
func TestFrozenAndKilledPeers(t *testing.T) {
	for _, kind := range []Transport{QUIC, TCP} {
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			t.Run(fmt.Sprintf("%s/%v", kind, sig), func(t *testing.T) {
				t.Parallel()
				cmd, addr := startPeer(t, kind, "127.0.0.1:0")
				book := &addressBook{}
				a := startLink(t, 1, book, func(c *Config) { c.TCPOnly, c.Timings = kind == TCP, Timings{} })
				book.set(nodeID(2), addr)
				s, err := a.Open(within(t, 5*time.Second), nodeID(2), "wait")
				if err != nil {
					t.Fatal(err)
				}
				w, err := a.Open(within(t, 5*time.Second), nodeID(2), "wait")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.Probe(within(t, 5*time.Second), nodeID(2)); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				wrote := make(chan error, 1)
				go func() {
					_, err := w.Write(make([]byte, 100*StreamBufferMax))
					wrote <- err
				}()
				_, err = s.Read(make([]byte, 1))
				took := time.Since(start)
				var lost *PeerLostError
				if !errors.As(err, &lost) || lost.Peer != nodeID(2) {
					t.Errorf("read: %v", err)
				}
				if err := <-wrote; !errors.As(err, &lost) {
					t.Errorf("write: %v", err)
				}
				if took > 5*time.Second || time.Since(start) > 6*time.Second {
					t.Errorf("noticed after %v and %v", took, time.Since(start))
				}
				t.Logf("noticed after %v: %v", took.Round(time.Millisecond), err)
			})
		}
	}
}

// A peer that was killed and started again at the same address is noticed with the
// first packet, as it says that it does not know the connection.
func TestKilledAndStartedAgain(t *testing.T) {
	for _, kind := range []Transport{QUIC, TCP} {
		t.Run(string(kind), func(t *testing.T) {
			cmd, addr := startPeer(t, kind, "127.0.0.1:0")
			book := &addressBook{}
			a := startLink(t, 1, book, func(c *Config) { c.TCPOnly, c.Timings = kind == TCP, Timings{} })
			book.set(nodeID(2), addr)
			mustCall(t, a, nodeID(2))
			s := open(t, a, &Link{cfg: Config{Self: nodeID(2)}}, "wait")
			cmd.Process.Kill()
			cmd.Wait()
			startPeer(t, kind, addr)
			start := time.Now()
			_, err := s.Read(make([]byte, 1))
			var lost *PeerLostError
			if !errors.As(err, &lost) {
				t.Errorf("%v", err)
			}
			took := time.Since(start)
			if took > 2*time.Second {
				t.Errorf("noticed after %v", took)
			}
			mustCall(t, a, nodeID(2))
			t.Logf("noticed after %v (%v), answered again after %v", took.Round(time.Millisecond), err, time.Since(start).Round(time.Millisecond))
		})
	}
}
