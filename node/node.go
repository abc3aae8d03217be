package node

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tandem/cluster/identity"
	"tandem/cluster/member"
	"tandem/node/api"
	"tandem/node/engine"
	"tandem/node/engine/llama"
	"tandem/node/models"
	"tandem/webui"
)

// Times that bound the end of a node.
const (
	// drainTime is how long running requests may go on after the node was told to
	// stop; service managers kill after 90 s by default.
	drainTime = 30 * time.Second
	// closeTime bounds what comes after: cancelled requests and models freed.
	closeTime = 15 * time.Second
	// saveTime is how long KV blocks that are only in memory may be written to disk;
	// what is left is lost.
	saveTime = 20 * time.Second
)

// Node is one member of a tandem cluster. New builds it, Run serves until its
// context ends; a Node is run once.
type Node struct {
	cfg      Config
	id       string
	secret   string             // of the cluster
	identity *identity.Identity // this node's share in it
	log      *slog.Logger
	lock     *os.File // held on the data folder
	store    *models.Store
	keeper   *keeper // nil: no KV blocks are kept
	kvAdmin  *kvAdmin
	pages    *everywhere
	rdma     *rdma  // nil: rdmaOff says why
	rdmaOff  string // for other nodes
	pool     *engine.Pool
	vocabs   *vocabs
	library  *library
	peers    *peers // nil: this node is alone
	told     told
	bench    *selfBench
	roles    *roles
	planner  *planner
	workload workload
	events   *eventHub
	past     *timelines // requests that ended
	tracer   *tracer    // nil: no traces are sent
	revoked  *revocations
	metrics  *metrics
	api      *api.Server
	server   *http.Server
	keys     []api.Key
	started  time.Time

	listening    chan struct{} // closed once addr is set and the port is open
	closed       chan struct{} // closed when Run has returned
	defaultTried chan struct{} // closed once the default model answers, or cannot be had
	stopping     context.Context
	stop         context.CancelFunc      // begins the end: streams of events close, ready turns false
	requests     context.Context         // parent of all requests
	cutOff       context.CancelCauseFunc // ends them
	tasks        sync.WaitGroup          // goroutines of go_
	addr         string                  // written before listening is closed
	running      atomic.Int64            // calls of Generate and Embed
	prefills     atomic.Int64            // prompts that are computed for other nodes

	mu struct {
		sync.Mutex
		loaded       map[string]*loadedModel // by name of the spec, while the pool holds it
		past         map[string]engineSample // counters of engines that are gone
		defaultModel string
		notReady     error // nil: the default model can answer
	}
}

// loadedModel is what the node keeps beside an engine.
type loadedModel struct {
	engine *engine.Engine
	reader reader
	kept   atomic.Pointer[keptModel] // nil: the digest of its file is not known yet
}

// New opens the data folder and wires a node by hand, in the order in which the
// parts need each other. Nothing runs and no port is open before Run.
func New(cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, log: cfg.logger(), listening: make(chan struct{}), closed: make(chan struct{}), defaultTried: make(chan struct{}), started: time.Now()}
	n.stopping, n.stop = context.WithCancel(context.Background())
	n.requests, n.cutOff = context.WithCancelCause(context.Background())
	n.mu.loaded, n.mu.past = map[string]*loadedModel{}, map[string]engineSample{}
	n.mu.notReady = errors.New("the node is starting")
	if n.cfg.LoadBackend == nil {
		n.cfg.LoadBackend = llama.Load
	}
	if n.cfg.DrainTime == 0 {
		n.cfg.DrainTime = drainTime
	}
	if n.cfg.OpenReader == nil {
		n.cfg.OpenReader = openReader
	}

	loadGPUBackends(cfg.Backends)
	// The data folder comes before all that writes: whoever holds its lock is the only one to write.
	var err error
	if n.lock, err = lockDataDir(cfg.DataDir); err != nil {
		return nil, err
	}
	if err := n.open(); err != nil {
		unlockDataDir(n.lock)
		return nil, err
	}
	return n, nil
}

// open builds everything that needs the locked data folder.
func (n *Node) open() error {
	var err error
	if n.id, err = nodeID(filepath.Join(n.cfg.DataDir, "node-id")); err != nil {
		return err
	}
	if n.secret, err = clusterSecret(n.cfg); err != nil {
		return err
	}
	if n.identity, err = identity.New(n.secret, member.ID(n.id)); err != nil {
		return fmt.Errorf("--secret: %w", err)
	}
	if n.keys, err = n.apiKeys(); err != nil {
		return err
	}
	if n.revoked, err = openRevocations(n); err != nil {
		return err
	}
	if n.store, err = openStore(n.cfg, n.log); err != nil {
		return err
	}
	n.metrics = newMetrics(n.engineSamples, n.kvSample,
		func() float64 { return float64(n.api.OpenStreams()) }, func() float64 { return float64(n.api.Panics()) })
	n.past, n.tracer = newTimelines(time.Now), newTracer(n.id, n.cfg.Name, n.log)
	if n.tracer != nil {
		n.past.ended, n.past.moved = n.tracer.ended, n.tracer.moved
	}
	n.events = newEventHub(n.id, logEvents(n.log), n.metrics.listen, n.past.listen)
	if n.keeper, err = n.openKeeper(); err != nil {
		return err
	}
	if err = n.openRDMA(); err != nil {
		return errors.Join(err, n.keeper.close())
	}
	n.pool, n.kvAdmin = engine.NewPool(n.poolConfig()), newKVAdmin(n)
	n.bench, n.roles, n.planner = newSelfBench(n), newRoles(n), newPlanner(n)
	n.vocabs = &vocabs{node: n}
	n.library = &library{node: n, store: n.store, context: n.cfg.Context}
	n.pages = newEverywhere(n)
	n.api = api.New(api.Config{
		Generator: n, Library: n.library, Admin: n, KV: n.kvAdmin, Cluster: clusterAdmin{n}, Calc: calculator{n}, Nodes: n.pages, Page: webui.Handler(),
		Keys: n.keys, Loopback: isLoopback(n.cfg.Listen), AllowedHosts: n.cfg.AllowHosts, AllowedOrigins: n.cfg.AllowOrigins, Version: Version, Slots: n.cfg.Parallel,
		Observe: n.observe, Logger: n.log,
		KeyAdmin: keyAdmin{n}, Audit: n.audit,
		Requests: func(after uint64, limit int) any { return n.past.recent(after, limit) },
	})
	n.revoked.hand()
	n.server = n.api.HTTPServer()
	n.server.BaseContext = func(net.Listener) context.Context { return n.requests }
	return nil
}

// Run opens the port, serves until ctx ends, lets running requests finish and
// frees everything. It returns nil after an orderly end.
func (n *Node) Run(ctx context.Context) error {
	defer close(n.closed)
	defer unlockDataDir(n.lock)
	listener, err := net.Listen("tcp", n.cfg.Listen)
	if err != nil {
		n.stop()
		return errors.Join(fmt.Errorf("--listen: %w", err), n.pool.Close(ctx), n.closeKV())
	}
	n.addr = listener.Addr().String()
	if err = n.openPeers(); err != nil {
		var taken *portsTaken
		if !errors.As(err, &taken) {
			n.stop()
			return errors.Join(err, listener.Close(), n.pool.Close(ctx), n.closeKV())
		}
		n.log.Warn(err.Error())
	}
	close(n.listening)

	n.pages.serve()
	served := make(chan error, 1)
	n.goFunc(func() { served <- n.server.Serve(api.Listener(listener)) })
	n.goFunc(func() { n.prepareDefault(n.stopping) })
	n.goFunc(n.kvAdmin.checkKV)
	n.goFunc(n.bench.run)
	if n.peers != nil {
		n.goFunc(n.roles.run)
		n.goFunc(n.planner.run)
	}
	n.goFunc(func() { n.store.PrepareSharing(n.stopping) })

	select {
	case <-ctx.Done():
		err = nil
	case err = <-served:
	}
	return errors.Join(err, n.close())
}

// close undoes Run in reverse: no new requests, running ones finish, then
// everything that still runs is cut off and the engines are freed.
func (n *Node) close() error {
	n.log.Info("stopping", "drain", n.cfg.DrainTime)
	n.stop()
	n.peers.draining()
	drain, cancel := context.WithTimeout(context.Background(), n.cfg.DrainTime)
	defer cancel()
	err := errors.Join(n.server.Shutdown(drain), n.pages.close(drain), n.quiet(drain))
	if errors.Is(err, context.DeadlineExceeded) {
		n.log.Warn("requests were still running; they are cut off")
		n.cutOff(api.Busy(http.StatusServiceUnavailable, n.cfg.DrainTime, "the node is stopping"))
		cut, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		err = errors.Join(n.server.Shutdown(cut), n.server.Close(), n.quiet(cut))
	}
	n.cutOff(context.Canceled)
	end, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err = errors.Join(err, n.peers.close(), n.pool.Close(end))
	n.vocabs.end()
	n.tasks.Wait()
	return errors.Join(err, n.closeKV())
}

// closeKV saves the kept blocks and gives their memory back, unless a device may still
// write there.
func (n *Node) closeKV() error {
	lost := n.rdma.close()
	if lost != nil {
		n.keeper.store.Spare(1) // keeps the memory mapped
	}
	return errors.Join(lost, n.keeper.close())
}

// quiet waits until no request runs here, also none of other nodes.
func (n *Node) quiet(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.running.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// goFunc runs fn on a goroutine that close waits for.
func (n *Node) goFunc(fn func()) {
	n.tasks.Add(1)
	go func() {
		defer n.tasks.Done()
		fn()
	}()
}

// Listening is closed once the port is open; Addr is set from then on.
func (n *Node) Listening() <-chan struct{} { return n.listening }

// Closed is closed when Run has returned.
func (n *Node) Closed() <-chan struct{} { return n.closed }

// ID is the identity of the node.
func (n *Node) ID() string { return n.id }

// Addr is the address of API and page, after Listening.
func (n *Node) Addr() string { return n.addr }

// Welcome is what a person sees once the port is open.
func (n *Node) Welcome() string {
	url := "http://" + strings.Replace(strings.Replace(n.addr, "[::]", "localhost", 1), "0.0.0.0", "localhost", 1)
	var b strings.Builder
	fmt.Fprintf(&b, "tandem %s: %s\n", Version, n.cfg.Name)
	fmt.Fprintf(&b, "  web page    %s\n", url)
	fmt.Fprintf(&b, "  OpenAI API  %s/v1\n", url)
	fmt.Fprintf(&b, "  Ollama API  OLLAMA_HOST=%s\n", url)
	if line := n.joinLine(); line != "" {
		fmt.Fprintf(&b, "  next box    %s\n", line)
	}
	if len(n.keys) > 0 && len(n.cfg.APIKeys) == 0 {
		fmt.Fprintf(&b, "  API key     %s  (made because --listen is open to the network; kept in the data folder)\n", n.keys[0].Secret)
	}
	return b.String()
}

// loadGPUBackends loads the ggml libraries of a folder, or of the one beside the
// program if none is named and that is there.
func loadGPUBackends(dir string) {
	if dir == "" {
		program, err := os.Executable()
		if err != nil {
			return // no place beside the program to look in
		}
		dir = filepath.Join(filepath.Dir(program), "backends")
		if folderOrNone(dir) != nil {
			return
		}
	}
	llama.LoadBackends(dir)
}

// lockDataDir makes the folder and takes its lock, which ends with the process.
func lockDataDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("--data-dir: %s is in use by another tandem process; stop that, or give this one a folder of its own", dir)
		}
		return nil, fmt.Errorf("--data-dir: lock %s: %w", dir, err)
	}
	return f, nil
}

// unlockDataDir ends the lock, also where a program that is just being started still
// shares the descriptor.
func unlockDataDir(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}

// nodeID reads the identity of this node, or makes one: random, so that neither
// a new address nor a new name is a new node.
func nodeID(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err == nil {
		id := strings.TrimSpace(string(data))
		if raw, err := hex.DecodeString(id); err != nil || len(raw) != 16 {
			return "", fmt.Errorf("%s: %q is not 32 hexadecimal digits; delete the file to get a new identity", file, id)
		}
		return id, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	raw := make([]byte, 16)
	rand.Read(raw)
	id := hex.EncodeToString(raw)
	return id, os.WriteFile(file, []byte(id+"\n"), 0o600)
}

// apiKeys are the configured keys. A node that listens beyond loopback always
// has one: without --api-key it makes one of the cluster's secret, so that it is the
// same on all nodes, and keeps it.
func (n *Node) apiKeys() ([]api.Key, error) {
	var keys []api.Key
	for _, v := range n.cfg.APIKeys {
		k, err := api.ParseKey(v)
		if err != nil {
			return nil, fmt.Errorf("--api-key: %w", err)
		}
		keys = append(keys, k)
	}
	if len(keys) > 0 || isLoopback(n.cfg.Listen) {
		return keys, nil
	}
	file := filepath.Join(n.cfg.DataDir, "api-key")
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		key := n.identity.MAC(0, []byte("tandem api key 1"))
		data = []byte("sk-tandem-" + base32.StdEncoding.EncodeToString(key[:])[:26])
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return nil, err
	}
	secret := strings.TrimSpace(string(data))
	if err := apiKey(secret); err != nil {
		return nil, fmt.Errorf("%s: %w; delete the file to get a new key", file, err)
	}
	return []api.Key{{Secret: secret}}, nil
}

// isLoopback tells whether only this machine can reach an address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// FirstKey is the key that a client of a node with this configuration uses, or "": the
// first that may administer, or the first if none may.
func FirstKey(c Config) string {
	if len(c.APIKeys) == 0 {
		data, err := os.ReadFile(filepath.Join(c.DataDir, "api-key"))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	first := ""
	for _, v := range c.APIKeys {
		k, err := api.ParseKey(v)
		switch {
		case err != nil:
		case k.Scopes == 0 || k.Scopes&api.ScopeAdmin != 0:
			return k.Secret
		case first == "":
			first = k.Secret
		}
	}
	return first
}
