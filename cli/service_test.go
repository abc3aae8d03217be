package cli

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
)

// The units that install writes are good in the eyes of systemd.
func TestUnitsAreValid(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"system": {"verify"}, "user": {"verify", "--user"}} {
		s := &service{system: name == "system", executable: self, config: "/etc/tandem/config.yaml"}
		file := filepath.Join(t.TempDir(), unitName)
		if err := os.WriteFile(file, []byte(s.text()), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(analyze, append(args, file)...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		// Units of the machine that are broken by themselves are named, too.
		for l := range strings.Lines(string(out)) {
			if strings.Contains(l, unitName) {
				t.Errorf("%s: %s", name, l)
			}
		}
		if err != nil && strings.Contains(string(out), unitName) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestServiceFiles(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "NODE_PARALLEL=2"}
	code, out, errs := run(t, env, "service", "install", "--user", "--no-start", "--ctx", "8192", "--model", "a", "--model", "b", "--secret", "a secret of \"sixteen\"")
	if code != 0 {
		t.Fatalf("%d, %s, %s", code, out, errs)
	}
	config := filepath.Join(home, ".config/tandem/config.yaml")
	info, err := os.Stat(config)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v: the settings hold the secret", err, info)
	}
	data, _ := os.ReadFile(config)
	settings, err := node.ReadYAML(data)
	if err != nil || settings["ctx"][0] != "8192" || settings["parallel"][0] != "2" || len(settings["model"]) != 2 || settings["secret"][0] != `a secret of "sixteen"` || settings["listen"] == nil {
		t.Errorf("%v, %v", err, settings)
	}
	unit, _ := os.ReadFile(filepath.Join(home, ".config/systemd/user", unitName))
	if !strings.Contains(string(unit), "Type=notify") || !strings.Contains(string(unit), "--config "+config) || strings.Contains(string(unit), "sixteen") {
		t.Errorf("%s", unit)
	}
	if code, _, errs := run(t, env, "service", "install", "--user", "--no-start", "--ctx", "16"); code != 2 || !strings.Contains(errs, "--force") {
		t.Errorf("settings were replaced: %d, %s", code, errs)
	}
	if code, _, errs := run(t, env, "service", "install", "--user", "--no-start", "--ctx", "banana"); code != 2 || !strings.Contains(errs, "--ctx") {
		t.Errorf("%d, %s", code, errs)
	}
	if code, out, _ := run(t, []string{"HOME=" + t.TempDir()}, "service", "status", "--user"); code != 0 || !strings.Contains(out, "no service is installed") {
		t.Errorf("%d, %s", code, out)
	}
	if code, _, errs := run(t, []string{"HOME=" + t.TempDir()}, "service", "uninstall", "--user"); code != 1 || !strings.Contains(errs, "no service is installed") {
		t.Errorf("%d, %s", code, errs)
	}
}

// systemd is told when the node serves, that it still does, and that it stops.
func TestNotifierTellsSystemd(t *testing.T) {
	dir, err := os.MkdirTemp("", "") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/n", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.SetReadDeadline(time.Now().Add(nodetest.Patience)); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		buf := make([]byte, 4096)
		n, err := socket.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	n := nodetest.Start(t, enginetest.Options{}, nil)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		newNotifier([]string{"NOTIFY_SOCKET=" + dir + "/n", "WATCHDOG_USEC=20000", "WATCHDOG_PID=7"}, 7).run(ctx, n.Node)
	}()
	if got := next(); !strings.HasPrefix(got, "READY=1\nSTATUS=serving at 127.0.0.1:") {
		t.Errorf("first came %q", got)
	}
	if got := next(); !strings.HasPrefix(got, "WATCHDOG=1\n") {
		t.Errorf("then %q", got)
	}
	stop()
	for !strings.HasPrefix(next(), "STOPPING=1") {
	}
	n.Close()
	<-ended

	if quiet := newNotifier([]string{"NOTIFY_SOCKET=" + dir + "/n", "WATCHDOG_USEC=20000", "WATCHDOG_PID=8"}, 7); quiet.watchdog != 0 {
		t.Error("it answers the watchdog of another process")
	}
	if none := newNotifier(nil, 7); none.addr != nil {
		t.Error("it notifies though nobody asked")
	}
}
