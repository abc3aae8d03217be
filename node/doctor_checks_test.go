package node

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/xfer"
)

// made runs one part of an examination and returns its checks.
func made(e Examination, part func(*doctor)) []Check {
	var checks []Check
	e.Each = func(c Check) { checks = append(checks, c) }
	part(&doctor{Examination: e})
	return checks
}

// expectCheck looks for a check of a state that says all words.
func expectCheck(t *testing.T, checks []Check, state string, words ...string) {
	t.Helper()
	for _, c := range checks {
		text, all := c.Name+": "+c.Found+"; "+c.Remedy, c.State == state
		for _, w := range words {
			all = all && strings.Contains(text, w)
		}
		if all {
			return
		}
	}
	t.Errorf("nothing is %s with %q in %+v", state, words, checks)
}

func TestDoctorReadsPeerAddresses(t *testing.T) {
	for _, tt := range []struct {
		text, host string
		port       int
	}{
		{"box", "box", 9495}, {"box:7000", "box", 7000}, {"10.0.0.1", "10.0.0.1", 9495}, {"10.0.0.1:1", "10.0.0.1", 1},
		{"::1", "::1", 9495}, {"[::1]", "::1", 9495}, {"[::1]:7000", "::1", 7000},
		{"", "", 0}, {"a b", "", 0}, {":9495", "", 0}, {"box:", "", 0}, {"box:0", "", 0}, {"box:70000", "", 0}, {"http://box", "", 0}, {"a:b:c", "", 0},
	} {
		host, port, err := peerAddress(tt.text)
		if host != tt.host || port != tt.port || (err == nil) != (tt.host != "") {
			t.Errorf("%q: %q, %d, %v", tt.text, host, port, err)
		}
	}
}

func TestDoctorOfTheDataFolder(t *testing.T) {
	free := t.TempDir()
	used := t.TempDir()
	lock, err := lockDataDir(used)
	if err != nil {
		t.Fatal(err)
	}
	defer unlockDataDir(lock)
	file := filepath.Join(t.TempDir(), "file")
	badID := t.TempDir()
	for name, text := range map[string]string{file: "", filepath.Join(badID, "node-id"): "me", filepath.Join(used, "node-id"): strings.Repeat("ab", 16)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running := &Status{}
	running.Node.ID = strings.Repeat("ab", 16)
	for _, tt := range []struct {
		name, dir string
		running   *Status
		state     string
		words     []string
	}{
		{"not there", filepath.Join(free, "a", "b"), nil, CheckOK, []string{"is made at the start"}},
		{"free", free, nil, CheckOK, []string{"nobody uses it"}},
		{"a file", file, nil, CheckWrong, []string{"is no folder", "--data-dir"}},
		{"below a file", filepath.Join(file, "x"), nil, CheckWrong, []string{"--data-dir"}},
		{"used by another", used, nil, CheckWrong, []string{"is in use by", "process", "stop that process"}},
		{"used by the node that runs", used, running, CheckOK, []string{"the node that runs has it"}},
		{"not that of the node that runs", free, running, CheckWarning, []string{"another folder", "--data-dir"}},
		{"an id that is none", badID, nil, CheckWrong, []string{"node-id", "delete the file"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checks := made(Examination{Config: Config{DataDir: tt.dir}, Running: tt.running}, (*doctor).dataFolder)
			expectCheck(t, checks, tt.state, tt.words...)
		})
	}
	if left, _ := filepath.Glob(filepath.Join(free, "*")); len(left) > 0 {
		t.Errorf("the examination left %q", left)
	}
	checks := made(Examination{Config: Config{DataDir: free, KVDisk: 1 << 50}}, (*doctor).dataFolder)
	if _, known := freeSpace(free); known {
		expectCheck(t, checks, CheckWarning, "disk", "--kv-disk")
	}
}

func TestDoctorOfTheSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good", "a secret of many letters\n", 0o600)
	open := write("open", "a secret of many letters\n", 0o644)
	short := write("short", "short\n", 0o600)
	for _, tt := range []struct {
		name   string
		c      Config
		peer   string
		state  string
		words  []string
		secret string
	}{
		{"given", Config{Secret: "a secret of many letters"}, "", CheckOK, []string{"24 characters"}, "a secret of many letters"},
		{"given and short", Config{Secret: "short"}, "", CheckWrong, []string{"5 characters", "16"}, ""},
		{"in a file", Config{SecretFile: good}, "", CheckOK, []string{good}, "a secret of many letters"},
		{"in a file that others read", Config{SecretFile: open}, "", CheckWarning, []string{"0644", "chmod 600 " + open}, "a secret of many letters"},
		{"short in a file", Config{SecretFile: short}, "", CheckWrong, []string{"5 characters"}, ""},
		{"in no file", Config{SecretFile: filepath.Join(dir, "none")}, "", CheckWrong, []string{"--secret-file"}, ""},
		{"none yet", Config{DataDir: dir}, "", CheckOK, []string{"makes one"}, ""},
		{"none for a way", Config{DataDir: dir}, "box", CheckWrong, []string{"a member's data folder"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var found string
			checks := made(Examination{Config: tt.c, Peer: tt.peer}, func(d *doctor) { d.readSecret(); found = d.secret })
			expectCheck(t, checks, tt.state, tt.words...)
			if found != tt.secret {
				t.Errorf("it found %q", found)
			}
			for _, c := range checks {
				if strings.Contains(c.Found+c.Remedy, "many letters") {
					t.Errorf("it tells the secret: %+v", c)
				}
			}
		})
	}
}

func TestDoctorOfPorts(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	both := []string{"TCP", "UDP"}
	never := func() bool { return false }
	for _, tt := range []struct {
		name, addr string
		own        func() bool
		state      string
		words      []string
	}{
		{"any", "127.0.0.1:0", never, CheckOK, []string{"any free one"}},
		{"held in TCP", tcp.Addr().String(), never, CheckWrong, []string{"another program", "TCP", "--gossip"}},
		{"held in UDP", udp.LocalAddr().String(), never, CheckWrong, []string{"another program", "UDP", "--gossip"}},
		{"its own", tcp.Addr().String(), func() bool { return true }, CheckOK, []string{"held by the node that runs"}},
		{"not of this machine", "198.51.100.7:9495", never, CheckWrong, []string{"no address of this machine", "0.0.0.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checks := made(Examination{}, func(d *doctor) { d.port("--gossip", tt.addr, both, tt.own) })
			expectCheck(t, checks, tt.state, tt.words...)
		})
	}
}

func TestDoctorOfTheAdvertisedAddress(t *testing.T) {
	for _, tt := range []struct {
		name, addr, on, peer string
		state                string
		words                []string
	}{
		{"loopback", "127.0.0.1", "lo", "0.0.0.0:1", CheckWarning, []string{"only nodes on this machine", "--advertise"}},
		{"link-local", "169.254.1.2", "eth0", "0.0.0.0:1", CheckWarning, []string{"DHCP"}},
		{"of a router", "203.0.113.5", "", "0.0.0.0:1", CheckWarning, []string{"forward the ports"}},
		{"link on loopback", "192.168.1.5", "eth0", "127.0.0.1:1", CheckWarning, []string{"--peer"}},
		{"of a network card", "192.168.1.5", "eth0", "0.0.0.0:1", CheckOK, []string{"192.168.1.5 (eth0)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checks := made(Examination{Config: Config{Peer: tt.peer}}, func(d *doctor) { d.reachable("address", netip.MustParseAddr(tt.addr), tt.on) })
			expectCheck(t, checks, tt.state, tt.words...)
		})
	}
	checks := made(Examination{Config: Config{Name: "n", Gossip: "127.0.0.1:9495", Peer: "127.0.0.1:9496", Advertise: "0.0.0.0"}}, func(d *doctor) {
		if err := d.open(); err != nil {
			t.Fatal(err)
		}
		defer d.close()
		d.advertised()
	})
	expectCheck(t, checks, CheckWrong, "means any address", "--advertise")
}

func TestDoctorOfBuffers(t *testing.T) {
	expectCheck(t, made(Examination{}, (*doctor).buffers), CheckOK)
	expectCheck(t, made(Examination{}, func(d *doctor) { d.wanted, d.small = 7<<20, 208<<10; d.buffers() }), CheckWarning, "7168 KiB", "208 KiB", "sysctl -w net.core.rmem_max=")
}

func TestDoctorOfVectors(t *testing.T) {
	for _, tt := range []struct {
		have  bool
		flags string
		state string
	}{
		{true, "-O3 -march=native", CheckOK}, {true, "-O3 -march=x86-64-v3", CheckOK}, {true, "-O2 -mavx2", CheckOK},
		{true, "-O3 -march=x86-64", CheckWarning}, {true, "-O2 -g", CheckWarning}, {true, "", CheckWarning}, {false, "-march=native", CheckWarning},
	} {
		expectCheck(t, made(Examination{}, func(d *doctor) { d.vectors(tt.have, tt.flags) }), tt.state, "AVX2")
	}
}

func TestDoctorFindsGPULibraries(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libggml-cuda.so", "libggml-base.so", "libggml-cpu-haswell.so", "other.so"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := backendLibraries(dir); len(got) != 1 || got[0] != "libggml-cuda.so" {
		t.Errorf("%q", got)
	}
}

func TestDoctorOfModels(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.gguf")
	if err := os.WriteFile(broken, []byte("GGUF, but not really"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := Config{DataDir: filepath.Join(t.TempDir(), "none"), Context: 4096, Parallel: 4, Batch: 512}
	for _, tt := range []struct {
		name, ref string
		state     string
		words     []string
	}{
		{"broken", broken, CheckWrong, []string{"default model", "broken", "--model"}},
		{"not there", "./no-such.gguf", CheckWrong, []string{"default model", "no-such"}},
		{"to be pulled", "some-model:1b", CheckOK, []string{"the start pulls it"}},
		{"built in", "tandem-tiny", CheckOK, []string{"built in"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := base
			c.Models = []string{tt.ref}
			checks := made(Examination{Config: c}, func(d *doctor) { d.models(t.Context()) })
			expectCheck(t, checks, tt.state, tt.words...)
		})
	}
}

func TestDoctorOfTheCluster(t *testing.T) {
	s := &Status{}
	s.Node.ID = "me"
	s.Cluster.Reason = "n2 is missing"
	s.Cluster.Problems = []string{"a sentence"}
	s.Cluster.Members = []Member{{ID: "me", Name: "n1", State: "ready"}, {ID: "2", Name: "n2", State: "failed"}, {ID: "3", Name: "n3", State: "ready"},
		{ID: "4", Name: "n4", State: "ready"}, {ID: "5", Name: "n5", State: "left"}, {ID: "6", Name: "n6", State: "ready"}}
	s.Cluster.Links = []PeerLink{{ID: "3", Transport: "quic", Addr: "10.0.0.3:9496"}, {ID: "4", Transport: "tcp", Addr: "10.0.0.4:9496"}, {ID: "6"}}
	checks := made(Examination{Running: s}, (*doctor).cluster)
	expectCheck(t, checks, CheckWrong, "agreement", "n2 is missing", "cluster recover")
	expectCheck(t, checks, CheckWarning, "node n2", "does not answer")
	expectCheck(t, checks, CheckOK, "node n3", "QUIC")
	expectCheck(t, checks, CheckWarning, "node n4", "TCP", "tandem doctor 10.0.0.4")
	expectCheck(t, checks, CheckOK, "node n5", "left")
	expectCheck(t, checks, CheckWarning, "node n6", "no link")
	expectCheck(t, checks, CheckWarning, "problem", "a sentence")
}

func TestDoctorOfClocksAndVersions(t *testing.T) {
	for ahead, state := range map[time.Duration]string{0: CheckOK, -time.Second: CheckOK, 2 * time.Minute: CheckWarning, -2 * time.Minute: CheckWarning, 49 * time.Hour: CheckWrong, -49 * time.Hour: CheckWrong} {
		side := "ahead"
		if ahead < 0 {
			side = "behind"
		}
		expectCheck(t, made(Examination{}, func(d *doctor) { d.clock(ahead) }), state, side)
	}
	expectCheck(t, made(Examination{}, func(d *doctor) { d.versions(Version) }), CheckOK)
	expectCheck(t, made(Examination{}, func(d *doctor) { d.versions("v0.0.1") }), CheckWarning, "v0.0.1")
	here := &Status{}
	here.Cluster.ID = "a"
	expectCheck(t, made(Examination{Running: here}, func(d *doctor) { d.otherCluster(tell{Cluster: "b"}) }), CheckWrong, "another cluster with the same secret", "folder raft")
}

// The port of a link is what the node that runs here knows, and only then a guess.
func TestDoctorKnowsPortsOfLinks(t *testing.T) {
	s := &Status{}
	s.Cluster.Links = []PeerLink{{ID: "quic", Transport: "quic", Addr: "10.0.0.3:7001"}, {ID: "tcp", Transport: "tcp", Addr: "10.0.0.4:55555"}}
	s.Cluster.Members = []Member{{ID: "quic", Addr: "http://10.0.0.3:9494"}, {ID: "tcp", Addr: "10.0.0.4:7002"}, {ID: "page", Addr: "http://10.0.0.5:9494"}}
	d := &doctor{Examination: Examination{Running: s}}
	if a, b, c := d.linkPort("quic", 1), d.linkPort("tcp", 1), d.linkPort("page", 1); a != 7001 || b != 7002 || c != 1 {
		t.Errorf("%d, %d, %d", a, b, c)
	}
}

// A link answers packets of every size that its way carries; what lets only small ones
// through shows as that.
func TestPacketSizes(t *testing.T) {
	var link string
	made(Examination{}, func(d *doctor) {
		if err := d.open(); err != nil {
			t.Fatal(err)
		}
		defer d.close()
		_, port, _ := net.SplitHostPort(d.link.Addr())
		link = net.JoinHostPort("127.0.0.1", port)
		if size, err := packetSize(t.Context(), link); err != nil || size != 1452 {
			t.Errorf("%d, %v", size, err)
		}
		if size, err := packetSize(t.Context(), relayUDP(t, link, 1300)); err != nil || size != 1280 {
			t.Errorf("by a tunnel: %d, %v", size, err)
		}
		if size, err := packetSize(t.Context(), relayUDP(t, link, 0)); err == nil || size != 0 {
			t.Errorf("by a firewall: %d, %v", size, err)
		}
	})
	if size, err := packetSize(t.Context(), link); err == nil || size != 0 {
		t.Errorf("after the end: %d, %v", size, err)
	}
	for size, want := range map[int]string{1452: CheckOK, 1280: CheckWarning, 0: CheckWarning} {
		expectCheck(t, made(Examination{}, func(d *doctor) { d.udp("10.0.0.1:9496", size, net.ErrClosed, false) }), want)
	}
}

// relayUDP passes packets of at most so many bytes on, one asker at a time.
func relayUDP(t *testing.T, to string, bytesMax int) string {
	t.Helper()
	in, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	asker := make(chan net.Addr, 1)
	go func() { // ends with in
		buf := make([]byte, 2048)
		for {
			n, from, err := in.ReadFrom(buf)
			if err != nil {
				return
			}
			select {
			case asker <- from:
			default:
			}
			if n <= bytesMax {
				out.Write(buf[:n])
			}
		}
	}()
	go func() { // ends with out
		buf := make([]byte, 2048)
		var to net.Addr
		for {
			n, err := out.Read(buf)
			if err != nil {
				return
			}
			if to == nil {
				to = <-asker
			}
			in.WriteTo(buf[:n], to)
		}
	}()
	t.Cleanup(func() { in.Close(); out.Close() })
	return in.LocalAddr().String()
}

func TestDoctorEndsAreNoErrors(t *testing.T) {
	for _, err := range []error{nil, os.ErrDeadlineExceeded, xfer.ErrPeerDone, &xfer.RemoteError{Code: xfer.CodeCancelled}} {
		if got := doctorEnd(err); got != nil {
			t.Errorf("%v: %v", err, got)
		}
	}
	for _, err := range []error{context.Canceled, &xfer.RemoteError{Code: xfer.CodeBusy}} {
		if doctorEnd(err) == nil {
			t.Errorf("%v passes", err)
		}
	}
}

// Answers to packets come from anybody.
func FuzzSizeAnswered(f *testing.F) {
	var id [idBytes]byte
	good := append([]byte{0x80, 0, 0, 0, 0, idBytes}, id[:]...)
	f.Add(good)
	f.Add(good[:10])
	f.Add(unknownVersion(id, 2, 1200))
	f.Fuzz(func(t *testing.T, p []byte) {
		if i, ok := sizeAnswered(p, id); ok && (i < 0 || i >= len(packetSizes)) {
			t.Errorf("size %d", i)
		}
	})
}
