package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v3"

	"tandem/cluster/identity"
	"tandem/node/api"
	"tandem/node/engine"
	"tandem/node/engine/llama"
	"tandem/scheduler"
)

// Config is everything that makes one node differ from another. The zero value
// is not usable: LoadConfig fills in the defaults of the option table. A Config
// is not changed after New.
type Config struct {
	Join       []string // members to join, host[:port]
	Secret     string   // shared by all nodes of a cluster; at least 16 characters
	SecretFile string   // file that holds it
	Name       string   // shown to people; 1-63 of a-z 0-9 . -
	DataDir    string   // everything that outlives the process
	Listen     string   // host:port of API and web page
	Gossip     string   // host:port, TCP and UDP
	Peer       string   // host:port, UDP for QUIC, TCP for its fallback
	Advertise  string   // host or IP that peers reach this node by; "" finds one

	Models       []string // references to serve; the first is the default
	Context      int      // tokens of one request, prompt and answer
	Parallel     int      // requests that one model answers at once
	Batch        int      // tokens of one step of the model
	Block        int      // tokens of one KV block
	KVType       string   // f16, q8_0, q4_0
	KVRAM        int64    // bytes for KV blocks in memory
	KVDisk       int64    // bytes for KV blocks on disk
	KVCheck      int      // every nth restored prompt is computed once more; 0: none
	KVTouches    int      // uses of a block before it is written to disk
	Role         string   // auto, hybrid, prefill, decode
	Planner      string   // auto, advise, off
	SelfBench    string   // auto, off
	Disagg       string   // auto, always, never, dynamo
	KVShared     string   // auto, off
	RDMA         string   // off, auto, require
	RDMAProvider string   // of libfabric; "": the best one that drives a device
	GPULayers    int      // layers on the GPU; -1: all
	Threads      int      // 0: one per physical core
	Backends     string   // folder with ggml backend libraries; "" is <program>/backends
	MaxModels    int      // models loaded at once
	Queue        int      // requests that may wait for one model
	KeepAlive    time.Duration
	APIKeys      []string // see api.ParseKey
	AllowHosts   []string // further names that browsers may use for this node
	AllowOrigins []string // further web pages whose scripts may use this node
	LogFormat    string   // text, json
	LogLevel     string   // debug, info, warn, error

	// What follows has no flag: tests put their own in, the product leaves it zero.

	// LoadBackend opens a model file; nil is llama.Load.
	LoadBackend func(ctx context.Context, o llama.Options) (engine.Backend, error)
	// OpenReader opens the vocabulary of a model file; nil is llama.OpenReader.
	OpenReader func(path string) (VocabReader, error)
	// PlanStep decides about roles while this node leads; nil is a scheduler.Planner.
	// PlanEvery is between two steps; 0: scheduler.PlanEvery.
	PlanStep  func(scheduler.PlanInput) scheduler.Verdict
	PlanEvery time.Duration
	DrainTime time.Duration // requests may go on for so long after the node was told to stop; 0: 30 s
	Heartbeat time.Duration // of the agreement; 0: as package quorum says
	DeadAfter time.Duration // failed nodes are forgotten after it; 0: as package cluster says
	LogOutput io.Writer     // nil: standard error
}

// Where other nodes find this one, unless told otherwise.
const (
	defaultGossip = "0.0.0.0:9495"
	defaultPeer   = "0.0.0.0:9496"
)

// option describes one setting once: its flag, its environment variable
// (NODE_ and the flag's name in capitals), its YAML key (the flag's name), its
// default and how text becomes a value.
type option struct {
	flag    string
	arg     string // what stands for the value in the help
	def     string
	usage   string
	allowed string // what a valid value looks like, for errors
	list    bool   // may be repeated; a comma parts values
	set     func(c *Config, v string) error
	get     func(c *Config) string
}

func (o option) env() string {
	return "NODE_" + strings.ToUpper(strings.ReplaceAll(o.flag, "-", "_"))
}

func options() []option {
	return []option{
		list("join", "host[:port]", "members of the cluster to join", "a host name or IP address with an optional port", checkHostPort, func(c *Config) *[]string { return &c.Join }),
		text("secret", "TEXT", "", "secret of the cluster", fmt.Sprintf("%d to %d printable characters without blanks at the ends", identity.SecretMin, identity.SecretMax), secretText, func(c *Config) *string { return &c.Secret }),
		text("secret-file", "FILE", "", "file that holds the secret", "a readable file", anyText, func(c *Config) *string { return &c.SecretFile }),
		text("name", "NAME", defaultName(), "name of this node", "1 to 63 letters, digits, dots and hyphens", nodeName, func(c *Config) *string { return &c.Name }),
		text("data-dir", "DIR", defaultDataDir(), "folder for models, KV blocks and identity", "a folder", needText, func(c *Config) *string { return &c.DataDir }),
		text("listen", "ADDR", "127.0.0.1:9494", "address of API and web page", "host:port", address, func(c *Config) *string { return &c.Listen }),
		text("gossip", "ADDR", defaultGossip, "address for gossip (TCP and UDP)", "host:port", address, func(c *Config) *string { return &c.Gossip }),
		text("peer", "ADDR", defaultPeer, "address for peer links (UDP and TCP)", "host:port", address, func(c *Config) *string { return &c.Peer }),
		text("advertise", "HOST", "", "host or IP that other nodes reach this one by", "a host name or IP address", anyText, func(c *Config) *string { return &c.Advertise }),
		list("model", "REF", "model to serve: a path, name:tag, hf.co/org/repo[:quant], an https URL", "a model reference", needText, func(c *Config) *[]string { return &c.Models }),
		number("ctx", "4096", "context of one request in tokens", 16, 1<<20, func(c *Config) *int { return &c.Context }),
		number("parallel", "4", "requests that one model answers at once", 1, 64, func(c *Config) *int { return &c.Parallel }),
		number("batch", "512", "tokens of one step of the model", 8, 8192, func(c *Config) *int { return &c.Batch }),
		number("block", "64", "tokens of one KV block", 8, 1024, func(c *Config) *int { return &c.Block }),
		choice("kv-type", "f16", "number format of the KV cache", []string{"f16", "q8_0", "q4_0"}, func(c *Config) *string { return &c.KVType }),
		size("kv-ram", "1GiB", "memory for KV blocks; 0 keeps none", func(c *Config) *int64 { return &c.KVRAM }),
		size("kv-disk", "10GiB", "disk space for KV blocks; 0 keeps them in memory only", func(c *Config) *int64 { return &c.KVDisk }),
		number("kv-touches", "1", "uses of a KV block before it is written to disk; 2 spares the disk", 1, 100, func(c *Config) *int { return &c.KVTouches }),
		number("kv-check", "0", "every Nth prompt that was restored is computed once more when the model is idle, and compared; 0 is never", 0, 1_000_000, func(c *Config) *int { return &c.KVCheck }),
		choice("role", "auto", "what this node does in a cluster", []string{"auto", "hybrid", "prefill", "decode"}, func(c *Config) *string { return &c.Role }),
		choice("planner", "auto", "when this node leads: whether roles are planned and taken, planned and only told, or not planned", []string{"auto", "advise", "off"}, func(c *Config) *string { return &c.Planner }),
		choice("self-bench", "auto", "measure a model for some seconds when it is new here and nobody uses it", []string{"auto", "off"}, func(c *Config) *string { return &c.SelfBench }),
		choice("disagg", "auto", "when another node may compute a prompt: when that is faster, or by a rule for comparison", []string{"auto", "always", "never", "dynamo"}, func(c *Config) *string { return &c.Disagg }),
		choice("kv-shared", "auto", "KV blocks of nodes on the same machine go through shared memory", []string{"auto", "off"}, func(c *Config) *string { return &c.KVShared }),
		choice("rdma", "off", "KV blocks by RDMA, which is not encrypted: off, where there is a device on a network that you trust, or no start without one", []string{"off", "auto", "require"}, func(c *Config) *string { return &c.RDMA }),
		text("rdma-provider", "NAME", "", "libfabric provider for RDMA, such as verbs;ofi_rxm; software ones (tcp, shm) are for tests", "a name that fi_info lists", anyText, func(c *Config) *string { return &c.RDMAProvider }),
		list("api-key", "[NAME[:WHAT]=]KEY", "key that clients must show; names keep tenants apart; WHAT is scopes (infer+metrics+admin) and limits (60rpm:20000tpm)", "8 to 512 printable characters without blanks, alone or after NAME= or NAME:WHAT=; WHAT is scopes (infer, metrics, admin, joined by +), 60rpm, 20000tpm, joined by :", apiKey, func(c *Config) *[]string { return &c.APIKeys }),
		number("gpu-layers", "-1", "layers on the GPU; -1 is all", -1, 1024, func(c *Config) *int { return &c.GPULayers }),
		number("threads", "0", "CPU threads; 0 is one per physical core", 0, 1024, func(c *Config) *int { return &c.Threads }),
		text("backends", "DIR", "", "folder with ggml GPU backend libraries", "a folder that is there", folderOrNone, func(c *Config) *string { return &c.Backends }),
		number("max-models", "2", "models loaded at once", 1, 64, func(c *Config) *int { return &c.MaxModels }),
		number("queue", "64", "requests that may wait for one model", 0, 65536, func(c *Config) *int { return &c.Queue }),
		duration("keep-alive", "30m", "how long an unused model stays loaded; -1s is for ever", func(c *Config) *time.Duration { return &c.KeepAlive }),
		list("allow-host", "HOST", "further host name that browsers may use for this node", "a host name", needText, func(c *Config) *[]string { return &c.AllowHosts }),
		list("allow-origin", "ORIGIN", "further web page whose scripts may use this node", "an origin such as https://chat.example", needText, func(c *Config) *[]string { return &c.AllowOrigins }),
		choice("log-format", "text", "format of the log", []string{"text", "json"}, func(c *Config) *string { return &c.LogFormat }),
		choice("log-level", "info", "least level that is logged", []string{"debug", "info", "warn", "error"}, func(c *Config) *string { return &c.LogLevel }),
	}
}

// Flag is one option as the command line sees it.
type Flag struct {
	Name, Arg, Default, Env, Usage string
	List                           bool
}

// Flags lists all options in the order of the documentation.
func Flags() []Flag {
	var out []Flag
	for _, o := range options() {
		out = append(out, Flag{Name: o.flag, Arg: o.arg, Default: o.def, Env: o.env(), Usage: o.usage, List: o.list})
	}
	return out
}

// Setting is one effective value and where it came from: default, a file name,
// an environment variable, or a flag.
type Setting struct{ Name, Value, Origin string }

// Sources are the places that settings come from, in rising order of strength:
// YAML, then Env, then Flags. Flags and YAML are by option name.
type Sources struct {
	YAML     map[string][]string
	YAMLName string
	Env      []string // as of os.Environ
	Flags    map[string][]string
}

// LoadConfig merges the sources over the defaults. The error lists every fault,
// each with the name of the setting as the user wrote it, its value and what is
// allowed.
func LoadConfig(s Sources) (Config, []Setting, error) {
	var c Config
	var settings []Setting
	var faults []error
	env := map[string]string{}
	for _, kv := range s.Env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	known := map[string]bool{}
	for _, o := range options() {
		known[o.flag] = true
		name, origin, values := "--"+o.flag, "default", []string{o.def}
		if v, ok := s.YAML[o.flag]; ok {
			name, origin, values = s.YAMLName+": "+o.flag, s.YAMLName, v
		}
		if v, ok := env[o.env()]; ok {
			name, origin, values = o.env(), o.env(), []string{v}
		}
		if v, ok := s.Flags[o.flag]; ok {
			name, origin, values = "--"+o.flag, "--"+o.flag, v
		}
		faults = append(faults, o.apply(&c, name, origin, values)...)
		settings = append(settings, Setting{Name: o.flag, Value: o.show(&c), Origin: origin})
	}
	for _, key := range slices.Sorted(maps.Keys(s.YAML)) {
		if !known[key] {
			faults = append(faults, fmt.Errorf("%s: %s: there is no such setting; `tandem config` lists them", s.YAMLName, key))
		}
	}
	faults = append(faults, c.cross()...)
	return c, settings, errors.Join(faults...)
}

func (o option) apply(c *Config, name, origin string, values []string) []error {
	var faults []error
	for _, v := range values {
		parts := []string{v}
		if o.list {
			parts = strings.Split(v, ",")
		}
		for _, part := range parts {
			if part = strings.TrimSpace(part); part == "" && (o.list || origin == "default") {
				continue
			}
			if err := o.set(c, part); err != nil {
				shown := strconv.Quote(part)
				if o.secret() {
					shown = "(hidden)"
				}
				faults = append(faults, fmt.Errorf("%s: %s: %w; allowed: %s", name, shown, err, o.allowed))
			}
		}
	}
	return faults
}

func (o option) secret() bool { return o.flag == "secret" || o.flag == "api-key" }

// show is the effective value; secrets are not printed.
func (o option) show(c *Config) string {
	v := o.get(c)
	if o.secret() && v != "" {
		return "(hidden)"
	}
	return v
}

// cross checks what one value alone cannot tell. It changes nothing.
func (c *Config) cross() []error {
	var faults []error
	if c.Secret != "" && c.SecretFile != "" {
		faults = append(faults, errors.New("--secret and --secret-file: both are given; allowed: one of them"))
	}
	if n := len(c.APIKeys); n > api.MaxKeys {
		faults = append(faults, fmt.Errorf("--api-key: there are %d keys; allowed: %d", n, api.MaxKeys))
	}
	return faults
}

// ReadYAML reads a config file: a flat map from option names to a value or a
// list of values.
func ReadYAML(data []byte) (map[string][]string, error) {
	const limit = 1 << 20 // a config is some lines; anything larger is not one
	if len(data) > limit {
		return nil, fmt.Errorf("the file has %d bytes; allowed: %d", len(data), limit)
	}
	var raw map[string]any
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for key, value := range raw {
		items, isList := value.([]any)
		if !isList {
			items = []any{value}
		}
		out[key] = []string{}
		for _, item := range items {
			switch item.(type) {
			case string, int, int64, uint64, float64, bool:
				out[key] = append(out[key], fmt.Sprint(item))
			case nil:
			default:
				return nil, fmt.Errorf("%s: a %T; allowed: a value or a list of values", key, item)
			}
		}
	}
	return out, nil
}

func text(flag, arg, def, usage, allowed string, check func(string) error, field func(*Config) *string) option {
	return option{flag: flag, arg: arg, def: def, usage: usage, allowed: allowed,
		set: func(c *Config, v string) error { *field(c) = v; return check(v) },
		get: func(c *Config) string { return *field(c) }}
}

func list(flag, arg, usage, allowed string, check func(string) error, field func(*Config) *[]string) option {
	return option{flag: flag, arg: arg, usage: usage, allowed: allowed, list: true,
		set: func(c *Config, v string) error { *field(c) = append(*field(c), v); return check(v) },
		get: func(c *Config) string { return strings.Join(*field(c), ",") }}
}

func number(flag, def, usage string, low, high int, field func(*Config) *int) option {
	return option{flag: flag, arg: "N", def: def, usage: usage, allowed: fmt.Sprintf("a whole number from %d to %d", low, high),
		set: func(c *Config, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil {
				return errors.New("is not a whole number")
			}
			if n < low || n > high {
				return errors.New("is out of range")
			}
			*field(c) = n
			return nil
		},
		get: func(c *Config) string { return strconv.Itoa(*field(c)) }}
}

func size(flag, def, usage string, field func(*Config) *int64) option {
	const high = 1 << 50
	return option{flag: flag, arg: "BYTES", def: def, usage: usage, allowed: "a size such as 512MiB or 20GB, up to 1PiB",
		set: func(c *Config, v string) error {
			n, err := humanize.ParseBytes(v)
			if err != nil {
				return errors.New("is not a size")
			}
			if n > high {
				return errors.New("is out of range")
			}
			*field(c) = int64(n)
			return nil
		},
		get: func(c *Config) string { return humanize.IBytes(uint64(*field(c))) }}
}

func choice(flag, def, usage string, values []string, field func(*Config) *string) option {
	return option{flag: flag, arg: strings.Join(values, "|"), def: def, usage: usage, allowed: strings.Join(values, ", "),
		set: func(c *Config, v string) error {
			if !slices.Contains(values, v) {
				return errors.New("is not known")
			}
			*field(c) = v
			return nil
		},
		get: func(c *Config) string { return *field(c) }}
}

func duration(flag, def, usage string, field func(*Config) *time.Duration) option {
	return option{flag: flag, arg: "TIME", def: def, usage: usage, allowed: "a time such as 30s, 5m or 1h",
		set: func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil {
				return errors.New("is not a time")
			}
			*field(c) = d
			return nil
		},
		get: func(c *Config) string { return field(c).String() }}
}

func anyText(string) error { return nil }

func folderOrNone(v string) error {
	if v == "" {
		return nil
	}
	if info, err := os.Stat(v); err != nil || !info.IsDir() {
		return errors.New("is no folder")
	}
	return nil
}

func needText(v string) error {
	if v == "" {
		return errors.New("is empty")
	}
	return nil
}

func secretText(v string) error {
	var bad *identity.SecretError
	if errors.As(identity.CheckSecret(v), &bad) {
		return errors.New(bad.Fault)
	}
	return nil
}

// apiKey accepts what api.ParseKey reads.
func apiKey(v string) error {
	_, err := api.ParseKey(v)
	return err
}

func nodeName(v string) error {
	if v == "" || len(v) > 63 {
		return fmt.Errorf("has %d characters", len(v))
	}
	for _, r := range v {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_') {
			return fmt.Errorf("has the character %q", r)
		}
	}
	return nil
}

func address(v string) error {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("is not host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return fmt.Errorf("has the port %q", port)
	}
	if strings.ContainsAny(host, " /\\\"'<>") {
		return fmt.Errorf("has the host %q", host)
	}
	return nil
}

func checkHostPort(v string) error {
	if net.ParseIP(strings.Trim(v, "[]")) != nil || !strings.Contains(v, ":") {
		return needText(v)
	}
	return address(v)
}

func defaultName() string {
	host, err := os.Hostname()
	if err != nil || nodeName(host) != nil {
		return "node"
	}
	return host
}

// defaultDataDir follows the XDG base directories.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tandem")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "tandem-data"
	}
	return filepath.Join(home, ".local", "share", "tandem")
}

// logger makes the log of a node. Nothing logs through a package-level logger.
func (c *Config) logger() *slog.Logger {
	out := c.LogOutput
	if out == nil {
		out = os.Stderr
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, o))
	}
	return slog.New(slog.NewTextHandler(out, o))
}
