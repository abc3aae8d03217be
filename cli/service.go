package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/node"
)

// What a service is called and how long systemctl may take. A stop waits for running
// answers, see the unit.
const (
	unitName      = "tandem.service"
	systemctlTime = 3 * time.Minute
)

// service is the systemd unit of this user, or of the machine.
type service struct {
	system     bool
	unit       string // file
	config     string // file with the settings
	executable string
	home       string
}

func (a *app) serviceCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "service", Short: "Run the node as a systemd service: install, status, uninstall", Args: noArgs,
		Long: "The service starts with the machine, or with the user's session, and again when it fails. When it is stopped, answers that run get 30 s to finish.\n" +
			"As root it is one of the machine, with a user of its own and its data in /var/lib/tandem; else, or with --user, one of the user.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.serviceInstallCommand(), a.serviceStatusCommand(), a.serviceUninstallCommand())
	return cmd
}

// newService finds the places of a service.
func (a *app) newService(ofUser bool) (*service, error) {
	s := &service{system: os.Geteuid() == 0 && !ofUser}
	var err error
	if s.executable, err = os.Executable(); err != nil {
		return nil, err
	}
	if s.executable, err = filepath.EvalSymlinks(s.executable); err != nil {
		return nil, err
	}
	if s.system {
		s.unit, s.config = "/etc/systemd/system/"+unitName, "/etc/tandem/config.yaml"
		return s, nil
	}
	s.home = lookup(a.env.Environ, "XDG_CONFIG_HOME")
	if !filepath.IsAbs(s.home) {
		home := lookup(a.env.Environ, "HOME")
		if !filepath.IsAbs(home) {
			return nil, errors.New("HOME is not set, so there is no place for a service of this user")
		}
		s.home = filepath.Join(home, ".config")
	}
	s.unit, s.config = filepath.Join(s.home, "systemd/user", unitName), filepath.Join(s.home, "tandem/config.yaml")
	return s, nil
}

func (a *app) serviceInstallCommand() *cobra.Command {
	var ofUser, onlyPrint, noStart, force, asJSON bool
	cmd := &cobra.Command{Use: "install [SETTINGS]", Short: "Install the service with the settings that are given, and start it", Args: noArgs,
		Long: "Settings are taken from flags, NODE_ variables and --config, and written to a file that only the owner can read:\n" +
			"/etc/tandem/config.yaml, or ~/.config/tandem/config.yaml. Change them there, then `systemctl restart tandem`.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.newService(ofUser)
			if err != nil {
				return err
			}
			given, err := a.givenSettings()
			if err != nil {
				return err
			}
			if err := s.check(given); err != nil {
				return usageError{err}
			}
			if onlyPrint {
				_, err := io.WriteString(a.env.Out, s.text())
				return err
			}
			if err := s.write(given, force); err != nil {
				return err
			}
			if !noStart {
				err = s.systemctl(cmd.Context(), "daemon-reload")
				if err == nil {
					err = s.systemctl(cmd.Context(), "enable", "--now", unitName)
				}
				if err != nil {
					return fmt.Errorf("%s is written, but not started: %w", s.unit, err)
				}
			}
			if asJSON {
				return printJSON(a.env.Out, map[string]any{"unit": s.unit, "config": s.config, "started": !noStart})
			}
			return s.tell(a.env.Out, !noStart)
		}}
	cmd.Flags().BoolVar(&ofUser, "user", false, "a service of this user, also as root")
	cmd.Flags().BoolVar(&onlyPrint, "print", false, "print the unit and change nothing")
	cmd.Flags().BoolVar(&noStart, "no-start", false, "write the files only")
	cmd.Flags().BoolVar(&force, "force", false, "replace settings that are there")
	return jsonFlag(cmd, &asJSON)
}

// tell says what was done and what comes next.
func (s *service) tell(w io.Writer, started bool) error {
	ctl, log := "systemctl", "journalctl -u tandem -f"
	if !s.system {
		ctl, log = "systemctl --user", "journalctl --user -u tandem -f"
	}
	fmt.Fprintf(w, "unit      %s\nsettings  %s\n", s.unit, s.config)
	if !started {
		fmt.Fprintf(w, "start it  %s daemon-reload && %[1]s enable --now tandem\n", ctl)
	}
	fmt.Fprintf(w, "log       %s  (it shows the join line and, if one was made, the API key)\n", log)
	if !s.system {
		fmt.Fprintln(w, "to let it run while you are logged out:  loginctl enable-linger")
	}
	return nil
}

// givenSettings are all settings but the defaults, by name.
func (a *app) givenSettings() (map[string][]string, error) {
	_, settings, err := a.config() // it checks them
	if err != nil {
		return nil, err
	}
	given := map[string][]string{}
	name := a.configFile
	if name == "" {
		name = lookup(a.env.Environ, "NODE_CONFIG")
	}
	var file map[string][]string
	if name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, usageError{fmt.Errorf("--config: %w", err)}
		}
		if file, err = node.ReadYAML(data); err != nil {
			return nil, usageError{fmt.Errorf("%s: %w", name, err)}
		}
	}
	for _, f := range node.Flags() {
		i := slices.IndexFunc(settings, func(s node.Setting) bool { return s.Name == f.Name })
		switch origin := settings[i].Origin; origin {
		case "default":
		case "--" + f.Name:
			given[f.Name] = a.flags[f.Name]
		case f.Env:
			given[f.Name] = []string{lookup(a.env.Environ, f.Env)}
		default:
			given[f.Name] = file[f.Name]
		}
	}
	return given, nil
}

// check refuses settings that the unit could not keep.
func (s *service) check(given map[string][]string) error {
	if _, ok := given["data-dir"]; ok && s.system {
		return errors.New("--data-dir: the service of the machine keeps its data in /var/lib/tandem, the only folder that it may write; allowed: --user, or none")
	}
	if strings.ContainsAny(s.executable+s.config, " \t\n\"'\\%$") {
		return fmt.Errorf("the path of the program or of its settings has a blank or a special character: %s, %s; install the program elsewhere, such as /usr/local/bin", s.executable, s.config)
	}
	return nil
}

// write writes unit and settings.
func (s *service) write(given map[string][]string, force bool) error {
	settings := settingsYAML(given)
	old, err := os.ReadFile(s.config)
	switch {
	case err == nil && len(given) > 0 && !bytes.Equal(old, settings) && !force:
		return usageError{fmt.Errorf("%s has other settings already; change them there, or replace them with --force", s.config)}
	case err == nil && len(given) == 0: // it keeps what it has
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	default:
		if err := os.MkdirAll(filepath.Dir(s.config), 0o755); err != nil {
			return err
		}
		if err := replaceFile(s.config, settings, 0o600); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(s.unit), 0o755); err != nil {
		return err
	}
	return replaceFile(s.unit, []byte(s.text()), 0o644)
}

// replaceFile writes a file whose content nobody else can read before its mode is set.
func replaceFile(name string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".tandem-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// settingsYAML is a config file with these settings. Quoted Go strings of printable
// text are YAML.
func settingsYAML(given map[string][]string) []byte {
	var b bytes.Buffer
	b.WriteString("# Settings of tandem; `tandem --help` lists them, `tandem config --config` this file shows what holds.\n")
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if values := given[name]; len(values) == 1 {
			fmt.Fprintf(&b, "%s: %s\n", name, strconv.Quote(values[0]))
		} else {
			fmt.Fprintf(&b, "%s:\n", name)
			for _, v := range values {
				fmt.Fprintf(&b, "  - %s\n", strconv.Quote(v))
			}
		}
	}
	return b.Bytes()
}

// text is the unit. What is left open has a reason: device files (GPUs, InfiniBand),
// memory that is both writable and executable (drivers of GPUs compile), locked memory
// (RDMA), and the network. ProtectClock is not there because it closes device files.
func (s *service) text() string {
	var b strings.Builder
	add := func(lines ...string) { b.WriteString(strings.Join(lines, "\n") + "\n") }
	add("# Written by `tandem service install`.",
		"[Unit]", "Description=tandem, an LLM server made of several boxes", "Wants=network-online.target", "After=network-online.target",
		"StartLimitIntervalSec=300", "StartLimitBurst=10", "",
		"[Service]", "Type=notify", "NotifyAccess=main")
	if s.system {
		add("ExecStart="+s.executable+" serve --config ${CREDENTIALS_DIRECTORY}/config.yaml --data-dir /var/lib/tandem",
			"LoadCredential=config.yaml:"+s.config, "DynamicUser=yes", "User=tandem", "StateDirectory=tandem", "StateDirectoryMode=0700")
		if groups := deviceGroups(); len(groups) > 0 {
			add("SupplementaryGroups=" + strings.Join(groups, " "))
		}
	} else {
		add("ExecStart=" + s.executable + " serve --config " + s.config)
	}
	add("# A bad setting (status 2) does not become good by starting again.",
		"Restart=on-failure", "RestartSec=2", "RestartPreventExitStatus=2", "WatchdogSec=60",
		"# Answers that run get 30 s, KV blocks that are only in memory 20 s, the rest is for cancelling.",
		"KillSignal=SIGTERM", "KillMode=mixed", "TimeoutStartSec=120", "TimeoutStopSec=120",
		"LimitNOFILE=65536", "LimitMEMLOCK=infinity", "UMask=0077",
		"NoNewPrivileges=yes", "LockPersonality=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "SystemCallArchitectures=native",
		"RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK", "RestrictNamespaces=yes")
	if s.system {
		add("CapabilityBoundingSet=", "AmbientCapabilities=", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes",
			"ProtectKernelTunables=yes", "ProtectKernelModules=yes", "ProtectKernelLogs=yes", "ProtectControlGroups=yes", "ProtectHostname=yes", "ProtectProc=invisible",
			"RemoveIPC=yes", "SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM", "", "[Install]", "WantedBy=multi-user.target")
	} else {
		add("", "[Install]", "WantedBy=default.target")
	}
	return b.String()
}

// deviceGroups are the groups of this machine that may use GPUs. A unit that names one
// that is not there does not start.
func deviceGroups() []string {
	var out []string
	for _, name := range []string{"render", "video"} {
		if _, err := user.LookupGroup(name); err == nil {
			out = append(out, name)
		}
	}
	return out
}

// systemctl runs one command of it. Its words are part of the error.
func (s *service) systemctl(ctx context.Context, args ...string) error {
	_, err := s.askSystemctl(ctx, args...)
	return err
}

func (s *service) askSystemctl(ctx context.Context, args ...string) (string, error) {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return "", errors.New("this machine has no systemctl; `tandem service install --print` prints the unit, `tandem serve` runs the node without one")
	}
	if !s.system {
		args = append([]string{"--user"}, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, systemctlTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// serviceState is what `service status --json` prints.
type serviceState struct {
	Unit      string `json:"unit"`
	Config    string `json:"config"`
	Installed bool   `json:"installed"`
	Enabled   string `json:"enabled,omitempty"`
	Active    string `json:"active,omitempty"`
	Sub       string `json:"sub,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Restarts  int    `json:"restarts,omitempty"`
	Since     string `json:"since,omitempty"`
	Status    string `json:"status,omitempty"` // in the node's words
}

func (a *app) serviceStatusCommand() *cobra.Command {
	var ofUser, asJSON bool
	cmd := &cobra.Command{Use: "status", Short: "Show whether the service is installed and runs", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.newService(ofUser)
			if err != nil {
				return err
			}
			st, err := s.state(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.env.Out, st)
			}
			if !st.Installed {
				return line("no service is installed: there is no %s; `tandem service install` installs one", st.Unit)(a.env.Out)
			}
			t := newTable(a.env.Out, "unit", st.Unit)
			t.row("settings", st.Config)
			t.row("state", st.Active+" ("+st.Sub+"), "+st.Enabled)
			t.row("since", st.Since)
			t.row("process", fmt.Sprintf("%d, started again %d times", st.PID, st.Restarts))
			t.row("node", printable(st.Status))
			return t.flush()
		}}
	cmd.Flags().BoolVar(&ofUser, "user", false, "the service of this user, also as root")
	return jsonFlag(cmd, &asJSON)
}

// state asks systemd.
func (s *service) state(ctx context.Context) (serviceState, error) {
	st := serviceState{Unit: s.unit, Config: s.config}
	if _, err := os.Stat(s.unit); errors.Is(err, os.ErrNotExist) {
		return st, nil
	}
	st.Installed = true
	text, err := s.askSystemctl(ctx, "show", unitName, "--property=UnitFileState,ActiveState,SubState,MainPID,NRestarts,ActiveEnterTimestamp,StatusText")
	if err != nil {
		return st, err
	}
	for l := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), "=")
		switch name {
		case "UnitFileState":
			st.Enabled = value
		case "ActiveState":
			st.Active = value
		case "SubState":
			st.Sub = value
		case "MainPID":
			st.PID, _ = strconv.Atoi(value) // 0 where it is none
		case "NRestarts":
			st.Restarts, _ = strconv.Atoi(value)
		case "ActiveEnterTimestamp":
			st.Since = value
		case "StatusText":
			st.Status = value
		}
	}
	return st, nil
}

func (a *app) serviceUninstallCommand() *cobra.Command {
	var ofUser, asJSON bool
	cmd := &cobra.Command{Use: "uninstall", Short: "Stop the service and remove its unit; settings and data stay", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.newService(ofUser)
			if err != nil {
				return err
			}
			if _, err := os.Stat(s.unit); errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("no service is installed: there is no %s", s.unit)
			}
			// Where systemd does not run there is nothing to stop.
			stopErr := s.systemctl(cmd.Context(), "disable", "--now", unitName)
			if err := os.Remove(s.unit); err != nil {
				return errors.Join(err, stopErr)
			}
			if stopErr != nil {
				return fmt.Errorf("the unit is removed, but the service could not be stopped: %w", stopErr)
			}
			if err := s.systemctl(cmd.Context(), "daemon-reload"); err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.env.Out, map[string]string{"removed": s.unit, "kept": s.config})
			}
			return line("%s is removed; %s and the data folder stay", s.unit, s.config)(a.env.Out)
		}}
	cmd.Flags().BoolVar(&ofUser, "user", false, "the service of this user, also as root")
	return jsonFlag(cmd, &asJSON)
}
