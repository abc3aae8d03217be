package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore"
	"tandem/node/engine"
)

// Version is set by the linker.
var Version = "dev"

// VersionLine is what `tandem version` prints.
func VersionLine() string {
	return fmt.Sprintf("tandem %s %s/%s %s", Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// engineStall is how long a model may have work and not finish a step before the
// node is not ready: far above the slowest step (a full batch of a large model
// on a small box), below what a person waits for.
const engineStall = 60 * time.Second

// Status is what /admin/status shows. Fields are added, never renamed.
type Status struct {
	Node struct {
		ID            string  `json:"id"`
		Name          string  `json:"name"`
		Role          string  `json:"role"`
		Version       string  `json:"version"`
		Ready         bool    `json:"ready"`
		Reason        string  `json:"reason,omitempty"` // why it is not ready
		UptimeSeconds float64 `json:"uptime_seconds"`
	} `json:"node"`
	Cluster struct {
		ID       string     `json:"id"`
		Leader   string     `json:"leader"`
		Voters   []string   `json:"voters"`
		Quorum   bool       `json:"quorum"`
		Reason   string     `json:"reason,omitempty"` // why there is no quorum
		Members  []Member   `json:"members"`
		Problems []string   `json:"problems,omitempty"` // sentences for people
		Links    []PeerLink `json:"links,omitempty"`
	} `json:"cluster"`
	Requests struct {
		Running int `json:"running"`
		Queued  int `json:"queued"`
	} `json:"requests"`
	KV struct {
		BlocksHeld   int                `json:"blocks_held"` // in use by requests; kept prefixes are not counted
		RAMBytes     int64              `json:"ram_bytes"`
		DiskBytes    int64              `json:"disk_bytes"`
		RAMReady     int64              `json:"ram_ready_bytes"` // memory for blocks that the system has given
		TokensSpared int64              `json:"tokens_spared"`   // restored instead of computed, since the start
		RAM          kvstore.TierStats  `json:"ram"`
		Disk         kvstore.TierStats  `json:"disk"`
		Queue        kvstore.QueueStats `json:"queue"`
		RDMA         *RDMAStatus        `json:"rdma,omitempty"` // nil: it is off
	} `json:"kv"`
	Planner      PlannerStatus   `json:"planner"`
	Reservations int             `json:"reservations"`
	Goroutines   int             `json:"goroutines"`
	OpenStreams  int             `json:"open_streams"`
	Models       []ModelStatus   `json:"models"`
	Devices      []engine.Device `json:"devices"`
	// MemoryBytes is what all loaded models together may take on this machine.
	MemoryBytes int64 `json:"memory_bytes"`
}

// Member is one node of the cluster.
type Member struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Addr    string   `json:"addr"`
	State   string   `json:"state"` // ready; alive: not ready; draining; failed; left
	Role    string   `json:"role"`
	Version string   `json:"version"`
	Models  []string `json:"models"`
	Blocks  int      `json:"blocks"` // KV blocks that it is known to hold
}

// aloneState is the state of a node that is a cluster of itself.
func aloneState(ready bool) string {
	if ready {
		return stateReady
	}
	return string(member.Alive)
}

// PeerLink is the way to another node.
type PeerLink struct {
	ID        string  `json:"id"`
	Transport string  `json:"transport"` // quic, tcp
	Addr      string  `json:"addr"`
	RTTMs     float64 `json:"rtt_ms"`
	Streams   int     `json:"streams"`
	Problem   string  `json:"problem,omitempty"` // the last one
	// KV are the ways on which KV blocks come from there.
	KV []BulkWay `json:"kv,omitempty"`
}

// ModelStatus is one loaded model.
type ModelStatus struct {
	Name        string    `json:"name"`
	MemoryBytes int64     `json:"memory_bytes"`
	Expires     time.Time `json:"expires,omitzero"`
	Context     int       `json:"context"`
	Slots       int       `json:"slots"`
	Running     int       `json:"running"`
	Queued      int       `json:"queued"`
	KVTokens    int       `json:"kv_tokens"`
	KVCells     int       `json:"kv_cells"`
	Resident    int       `json:"resident_tokens"`
	Computed    int64     `json:"prompt_tokens_computed"`
	Reused      int64     `json:"prompt_tokens_reused"`
	Restored    int64     `json:"prompt_tokens_restored"` // of those reused, from kept blocks
	Generated   int64     `json:"tokens_generated"`
	KVKept      bool      `json:"kv_kept"`             // blocks of this model are kept
	KVReason    string    `json:"kv_reason,omitempty"` // why they are not
	// Rates are how fast it is here, and what that is based on.
	Rates ModelRates `json:"rates"`
}

// Status implements api.Admin.
func (n *Node) Status(context.Context) any { return n.status() }

func (n *Node) status() Status {
	var s Status
	s.Node.ID, s.Node.Name, s.Node.Role, s.Node.Version = n.id, n.cfg.Name, n.role(), Version
	s.KV.RDMA = n.rdmaStatus()
	s.Node.UptimeSeconds = time.Since(n.started).Seconds()
	if err := n.Ready(); err != nil {
		s.Node.Reason = err.Error()
	} else {
		s.Node.Ready = true
	}
	s.Goroutines = runtime.NumGoroutine()
	s.OpenStreams = int(n.running.Load())
	s.Models, s.Devices, s.MemoryBytes = []ModelStatus{}, n.devices(), n.pool.Capacity()
	names := []string{}
	for _, m := range n.pool.Loaded() {
		st := m.Stats
		kept, why := n.keeps(m.Spec.Name)
		s.Models = append(s.Models, ModelStatus{KVKept: kept, KVReason: why, Restored: st.Restored, Name: m.Spec.Name, MemoryBytes: m.Memory.Total(), Expires: m.Expires,
			Context: st.Context, Slots: st.Slots, Running: st.Running, Queued: st.Queued, KVTokens: st.KVTokens, KVCells: st.KVCells,
			Resident: st.Resident, Computed: st.Computed, Reused: st.Reused, Generated: st.Generated})
		model, _ := n.store.Resolve(m.Spec.Model) // of none nothing is known
		rates := n.ratesOf(model, st)
		if k := n.keptOf(m.Spec.Name); k != nil && k.reason == "" {
			rates.KVBytes = k.shape.Bytes()
		}
		s.Models[len(s.Models)-1].Rates = rates
		names = append(names, m.Spec.Name)
		s.Requests.Running += st.Running
		s.Requests.Queued += st.Queued
		s.KV.BlocksHeld += (st.KVTokens + n.cfg.Block - 1) / n.cfg.Block
	}
	s.Requests.Queued += n.pool.Waiting()
	kv := n.kvSample()
	s.KV.RAMBytes, s.KV.DiskBytes, s.KV.TokensSpared = kv.RAM.Bytes, kv.Disk.Bytes, kv.TokensSpared
	s.KV.RAMReady = kv.Arena.FaultedBytes
	s.KV.RAM, s.KV.Disk, s.KV.Queue = kv.RAM, kv.Disk, kv.Queue
	n.clusterStatus(&s, names)
	s.Planner = n.plannerStatus()
	return s
}

// clusterStatus tells who the others are. One node is a cluster of itself: it leads,
// and its own vote is the quorum.
func (n *Node) clusterStatus(s *Status, names []string) {
	if n.peers == nil {
		s.Cluster.ID, s.Cluster.Leader, s.Cluster.Voters, s.Cluster.Quorum = n.id, n.id, []string{n.id}, true
		s.Cluster.Members = []Member{{ID: n.id, Name: n.cfg.Name, Addr: n.addr, State: aloneState(s.Node.Ready), Role: s.Node.Role, Version: Version, Models: names}}
		return
	}
	q := n.peers.quorum.Status()
	s.Cluster.ID, s.Cluster.Leader, s.Cluster.Quorum, s.Cluster.Reason = q.ClusterID, string(q.Leader), q.HasQuorum, q.Why
	s.Cluster.Voters = []string{}
	for _, id := range q.Voters {
		s.Cluster.Voters = append(s.Cluster.Voters, string(id))
	}
	s.Cluster.Members = n.peers.members()
	s.Cluster.Problems = n.peers.cluster.Problems()
	for _, p := range n.peers.link.Peers() {
		s.Cluster.Links = append(s.Cluster.Links, PeerLink{ID: string(p.ID), Transport: string(p.Transport), Addr: p.Addr, RTTMs: milliseconds(p.RTT), Streams: p.Streams, Problem: p.LastError, KV: n.peers.bulk.list(p.ID)})
	}
}

// members are the nodes with the models that each has.
func (p *peers) members() []Member {
	var out []Member
	for _, m := range p.cluster.Members() {
		st := Member{ID: string(m.ID), Name: m.Name, State: string(m.State), Role: string(m.Role), Version: m.Version, Models: []string{}, Addr: m.API}
		if st.Addr == "" && len(m.Peer) > 0 {
			st.Addr = m.Peer[0]
		}
		if m.ID == member.ID(p.node.id) {
			st.Addr = p.node.addr
		}
		p.told(m.ID, &st)
		out = append(out, st)
	}
	return out
}

// told adds what a node has told of itself.
func (p *peers) told(id member.ID, st *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.mu.views[id]
	if v == nil {
		return
	}
	if st.State == string(member.Alive) && v.load.Ready {
		st.State = stateReady
	}
	st.Blocks = p.mu.index.NodeBlocks(id)
	for _, c := range v.cards {
		st.Models = append(st.Models, c.Name)
	}
}

// stateReady is the state of an alive member that can answer now.
const stateReady = "ready"

// role is what this node does in the cluster.
func (n *Node) role() string {
	if n.peers != nil {
		if m, ok := n.peers.cluster.Member(member.ID(n.id)); ok {
			return string(m.Role)
		}
	}
	return string(n.wantedRole())
}

// Ready implements api.Admin: nil when a request for the default model would be
// answered now.
func (n *Node) Ready() error {
	if n.stopping.Err() != nil {
		return errors.New("the node is stopping")
	}
	n.mu.Lock()
	err := n.mu.notReady
	n.mu.Unlock()
	if err != nil {
		return err
	}
	for _, m := range n.pool.Loaded() {
		if m.Stats.Stalled > engineStall {
			return fmt.Errorf("model %s has %d requests and has made no step for %d s", m.Spec.Name, m.Running+m.Queued, int(m.Stats.Stalled.Seconds()))
		}
	}
	return nil
}

// setReady records why the node cannot answer, or nil, and tells it once.
func (n *Node) setReady(err error) {
	n.mu.Lock()
	before := n.mu.notReady
	n.mu.notReady = err
	n.mu.Unlock()
	if (before == nil) != (err == nil) {
		e := Ready{Ready: err == nil}
		if err != nil {
			e.Reason = err.Error()
		}
		n.events.emit(e)
	}
}

// WaitReady waits until the default model can answer or cannot be had.
func (n *Node) WaitReady(ctx context.Context) error {
	select {
	case <-n.defaultTried:
		return n.Ready()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Events implements api.Admin. Streams end when the node begins to stop.
func (n *Node) Events(ctx context.Context, open func(), each func(name string, data []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.stopping, cancel)()
	return n.events.subscribe(ctx, open, each)
}

// Metrics implements api.Admin.
func (n *Node) Metrics(w io.Writer) error { return n.metrics.write(w) }

// engineSamples reads all engines, those that are gone included.
func (n *Node) engineSamples() []engineSample {
	byModel := map[string]engineSample{}
	n.mu.Lock()
	for name, s := range n.mu.past {
		byModel[name] = s
	}
	for name, m := range n.mu.loaded {
		byModel[name] = byModel[name].plus(name, m.engine.Stats())
	}
	n.mu.Unlock()
	out := make([]engineSample, 0, len(byModel))
	for _, s := range byModel {
		out = append(out, s)
	}
	return out
}

// plus adds the counters of one engine and takes its gauges.
func (s engineSample) plus(model string, st engine.Stats) engineSample {
	return engineSample{model: model, running: st.Running, queued: st.Queued, kvUsed: st.KVTokens, kvCells: st.KVCells, resident: st.Resident,
		computed: s.computed + st.Computed, generated: s.generated + st.Generated, steps: s.steps + st.Steps}
}
