package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tandem/node"
)

// anyPorts are settings with which nothing is in the way of a start.
var anyPorts = []string{"NODE_LISTEN=127.0.0.1:0", "NODE_GOSSIP=127.0.0.1:0", "NODE_PEER=127.0.0.1:0"}

// One line a check, and the status tells whether something is wrong.
func TestDoctorSpeaksInLines(t *testing.T) {
	code, out, errs := run(t, anyPorts, "doctor", "--model", "tandem-tiny")
	if code != 0 || errs != "" {
		t.Errorf("status %d, %q", code, errs)
	}
	shape := regexp.MustCompile(`^(ok|warning|wrong) +[A-Za-z][^:]*: .+`)
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for _, l := range lines {
		if !shape.MatchString(l) {
			t.Errorf("line %q", l)
		}
	}
	for _, want := range []string{"node: none runs", "data folder: ", "secret: ", "port of --listen: ", "UDP buffers: ", "CPU: ", "GPU: ", "default model: tandem-tiny", "RDMA: "} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q in:\n%s", want, out)
		}
	}
	if !strings.Contains(out, "; remedy: ") { // of the address, which is that of loopback
		t.Errorf("no remedy in:\n%s", out)
	}
}

func TestDoctorFailsIfSomethingIsWrong(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	taken := append(anyPorts[:2:2], "NODE_PEER="+held.Addr().String())
	code, out, errs := run(t, taken, "doctor")
	if code != 1 || !strings.Contains(errs, "one thing is wrong") || !strings.Contains(out, "wrong    port of --peer: another program has "+held.Addr().String()) {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
	code, out, _ = run(t, append(anyPorts[:3:3], "NODE_SECRET=some secret of tests"), "doctor", "127.0.0.1:1")
	if code != 1 || !strings.Contains(out, "wrong    TCP to gossip: ") || !strings.Contains(out, "start the node there") {
		t.Errorf("status %d, %q", code, out)
	}
}

func TestDoctorPrintsJSON(t *testing.T) {
	code, out, errs := run(t, anyPorts, "doctor", "--json")
	var checks []node.Check
	if err := json.Unmarshal([]byte(out), &checks); err != nil || code != 0 {
		t.Fatalf("status %d, %v, %q", code, err, errs)
	}
	seen := map[string]string{}
	for _, c := range checks {
		seen[c.Name] = c.State
	}
	if len(checks) < 10 || seen["secret"] != node.CheckOK || seen["advertised address"] != node.CheckWarning {
		t.Errorf("%+v", checks)
	}
}

func TestDoctorRefusesWhatItCannotUse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"doctor", "a b"}, "host:port"},
		{[]string{"doctor", ""}, "PEER is empty"},
		{[]string{"doctor", "box:0"}, "box:0"},
		{[]string{"doctor", "one", "two"}, "got 2 arguments"},
		{[]string{"doctor", "--peer-port", "70000", "box"}, "0 to 65535"},
		{[]string{"doctor", "--colour"}, "--colour"},
	} {
		code, out, errs := run(t, anyPorts, tt.args...)
		if code != 2 || out != "" || !strings.Contains(errs, tt.says) {
			t.Errorf("%q: status %d, %q, %q", tt.args, code, out, errs)
		}
	}
}

// What a node that runs says of itself is told; a program that is none is named.
func TestDoctorAsksTheNodeThatRuns(t *testing.T) {
	answer, status := "", http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(answer))
	}))
	defer s.Close()
	at := append(anyPorts[1:3:3], "NODE_LISTEN="+strings.TrimPrefix(s.URL, "http://"), "NODE_DATA_DIR="+filepath.Join(t.TempDir(), "none"))
	for _, tt := range []struct {
		status int
		answer string
		code   int
		says   []string
	}{
		{200, `{"node":{"id":"aabbccdd","name":"n1","ready":true,"version":"v1"},"cluster":{"quorum":false,"reason":"n2 is \u001b[31mmissing","members":[{"id":"aabbccdd"}]}}`, 1,
			[]string{"n1 (aabbccdd) runs and is ready, v1", "held by the node that runs", "wrong    agreement: settings cannot be changed: n2 is", "tandem cluster recover"}},
		{401, `{"error":{"message":"a key is needed"}}`, 1, []string{"warning  node: something answers at ", "a key is needed", "--api-key", "wrong    port of --listen: another program has"}},
		{200, `{}`, 1, []string{"it is no node of tandem"}},
		{200, `<html>`, 1, []string{"something answers at "}},
	} {
		answer, status = tt.answer, tt.status
		code, out, errs := run(t, at, "doctor")
		if code != tt.code {
			t.Errorf("%s: status %d, %q, %q", tt.answer, code, out, errs)
		}
		for _, w := range tt.says {
			if !strings.Contains(out, w) {
				t.Errorf("%s: nothing says %q in:\n%s", tt.answer, w, out)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%q moves the cursor", out)
		}
	}
}

// The examination makes nothing in a folder that is not there.
func TestDoctorLeavesNothingBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	run(t, append(anyPorts[:3:3], "NODE_DATA_DIR="+dir), "doctor")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
}
