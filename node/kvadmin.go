package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
	"tandem/node/api"
)

// What the routes under /admin/kv answer with. Fields are added, never renamed.
type (
	// KVState is the state of the kept KV blocks.
	KVState struct {
		Enabled bool               `json:"enabled"`
		Reason  string             `json:"reason,omitempty"` // why it is not enabled
		RAM     kvstore.TierStats  `json:"ram"`
		Disk    kvstore.TierStats  `json:"disk"`
		Queue   kvstore.QueueStats `json:"queue"` // of blocks that wait to be written to disk

		DiskFull    bool  `json:"disk_full"`    // the last write found no room
		DiskFailing bool  `json:"disk_failing"` // the last write failed
		Generations int   `json:"generations"`
		SetAside    int64 `json:"set_aside"` // damaged generations
		Pins        int   `json:"pins"`

		TokensSpared int64 `json:"tokens_spared"` // restored instead of computed, since the start
		// SecondsSpared is what computing them would have taken, by the time per token
		// that was measured; 0 where nothing was.
		SecondsSpared float64   `json:"seconds_spared"`
		Checks        KVChecks  `json:"checks"`
		Models        []KVModel `json:"models"`
	}
	// KVModel says whether the blocks of a model are kept.
	KVModel struct {
		Name            string  `json:"name"`
		Loaded          bool    `json:"loaded"`
		Kept            bool    `json:"kept"`
		Reason          string  `json:"reason,omitempty"` // why not
		BlockTokens     int     `json:"block_tokens,omitempty"`
		BlockBytes      int     `json:"block_bytes,omitempty"`
		TokensSpared    int64   `json:"tokens_spared"`
		SecondsPerToken float64 `json:"seconds_per_token"` // of prefill; 0: not measured yet
		SecondsSpared   float64 `json:"seconds_spared"`
	}
	// KVPrefixes are prefixes that are held.
	KVPrefixes struct {
		Prefixes []KVPrefix `json:"prefixes"`
		Total    int        `json:"total"` // how many there are, listed or not
	}
	// KVPrefix is one of them.
	KVPrefix struct {
		kvstore.Prefix
		Model string `json:"model,omitempty"` // "": it was not loaded since the start
		Key   string `json:"key,omitempty"`   // name of the API key whose requests it serves
		// Words are its first ones, or if it goes on from another prefix, those of its
		// last block, which tell it from its siblings. Empty if they are not known or
		// must not be shown.
		Words string `json:"words,omitempty"`
	}
	// KVEvicted says what an eviction did.
	KVEvicted = kvstore.Evicted
	// KVVerified says what a verification found.
	KVVerified = kvstore.Verified
	// KVExported says what an export wrote.
	KVExported = kvstore.Exported
	// KVImported says what an import did.
	KVImported = kvstore.Imported
)

// kvAdmin is the operator's view of the kept KV blocks: api.KV.
type kvAdmin struct {
	node     *Node
	checking chan struct{} // one slot: what reads all blocks, or computes to compare
}

func newKVAdmin(n *Node) *kvAdmin { return &kvAdmin{node: n, checking: make(chan struct{}, 1)} }

// State implements api.KV.
func (a *kvAdmin) State(context.Context) any {
	k := a.node.keeper
	out := KVState{Enabled: k != nil, Models: []KVModel{}}
	models := map[string]*KVModel{}
	get := func(name string) *KVModel {
		if models[name] == nil {
			models[name] = &KVModel{Name: name}
		}
		return models[name]
	}
	if k == nil {
		out.Reason = "--kv-ram is 0"
	} else {
		st := k.store.Stats()
		out.RAM, out.Disk, out.Queue, out.TokensSpared = st.RAM, st.Disk, st.Queue, st.TokensSpared
		out.DiskFull, out.DiskFailing, out.Generations, out.SetAside, out.Pins = st.DiskFull, st.DiskFailing, st.Generations, st.SetAside, st.Pins
		out.Checks = k.check.state()
		for _, m := range k.models.list() {
			shown := get(m.name)
			shown.Kept, shown.TokensSpared = m.fingerprint != block.Fingerprint{}, m.spared
			if each, known := m.secondsPerToken(); known {
				shown.SecondsPerToken, shown.SecondsSpared = each, each*float64(m.spared)
				out.SecondsSpared += shown.SecondsSpared
			}
		}
	}
	a.node.mu.Lock()
	for name, m := range a.node.mu.loaded {
		shown := get(name)
		shown.Loaded = true
		if kept := m.kept.Load(); kept == nil {
			shown.Reason = noDigestYet
		} else {
			shown.Kept, shown.Reason = kept.reason == "", kept.reason
			shown.BlockTokens, shown.BlockBytes = kept.size, kept.size*kept.shape.Bytes()
		}
	}
	a.node.mu.Unlock()
	for _, m := range models {
		out.Models = append(out.Models, *m)
	}
	slices.SortFunc(out.Models, func(x, y KVModel) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// noDigestYet is why a model that was just loaded keeps nothing.
const noDigestYet = "the digest of its file is being made"

// store is the store, or the refusal if there is none.
func (a *kvAdmin) store() (*kvstore.Store, error) {
	if a.node.keeper == nil {
		return nil, &api.Error{Status: http.StatusConflict, Type: "invalid_request_error", Code: "kv_off",
			Message: "this node keeps no KV blocks: --kv-ram is 0; start it with --kv-ram 1GiB to keep some"}
	}
	return a.node.keeper.store, nil
}

// target is the store and the block that id names; "" is the zero id, which the
// store reads as everything.
func (a *kvAdmin) target(id string) (*kvstore.Store, block.ID, error) {
	s, err := a.store()
	if err != nil || id == "" {
		return s, block.ID{}, err
	}
	parsed, err := block.ParseID(id)
	if err != nil {
		return nil, block.ID{}, api.BadRequest("id", "%s", err.Error())
	}
	return s, parsed, nil
}

// Prefixes implements api.KV.
func (a *kvAdmin) Prefixes(ctx context.Context, limit int) (any, error) {
	s, err := a.store()
	if err != nil {
		return nil, err
	}
	list, total, err := s.List(ctx, limit)
	if err != nil {
		return nil, kvRefusal(err)
	}
	owners := a.owners()
	out := KVPrefixes{Prefixes: make([]KVPrefix, 0, len(list)), Total: total}
	for _, p := range list {
		owner := owners[p.Root]
		out.Prefixes = append(out.Prefixes, KVPrefix{Prefix: p, Model: owner.model, Key: owner.key, Words: a.node.keeper.wordsOf(p)})
	}
	return out, nil
}

// kvOwner is whose blocks follow a root.
type kvOwner struct{ model, key string }

// owners are the roots of all models that were loaded since the start, for every
// tenant there is.
func (a *kvAdmin) owners() map[block.ID]kvOwner {
	k := a.node.keeper
	out := map[block.ID]kvOwner{}
	for _, m := range k.models.list() {
		if (m.fingerprint == block.Fingerprint{}) {
			continue
		}
		if len(a.node.keys) == 0 {
			out[k.key.Root(m.fingerprint, "")] = kvOwner{model: m.name}
		}
		for _, key := range a.node.keys {
			out[k.key.Root(m.fingerprint, key.Tenant())] = kvOwner{model: m.name, key: key.Name}
		}
	}
	return out
}

// Pin implements api.KV.
func (a *kvAdmin) Pin(_ context.Context, id string, pinned bool) error {
	s, block, err := a.target(id)
	switch {
	case err != nil:
		return err
	case pinned:
		return kvRefusal(s.Pin(block))
	default:
		return kvRefusal(s.Unpin(block))
	}
}

// Evict implements api.KV.
func (a *kvAdmin) Evict(ctx context.Context, id string) (any, error) {
	s, block, err := a.target(id)
	if err != nil {
		return nil, err
	}
	out, err := s.Evict(ctx, block)
	return out, kvRefusal(err)
}

// Verify implements api.KV.
func (a *kvAdmin) Verify(ctx context.Context) (any, error) {
	s, err := a.store()
	if err != nil {
		return nil, err
	}
	if err := a.begin(); err != nil {
		return nil, err
	}
	defer a.end()
	out, err := s.Verify(ctx)
	return out, kvRefusal(err)
}

// begin takes the one place for what would take the disk or the engine from others,
// and end gives it back.
func (a *kvAdmin) begin() error {
	select {
	case a.checking <- struct{}{}:
		return nil
	default:
		return api.Busy(http.StatusTooManyRequests, 10*time.Second, "another verification of KV blocks is running; try again when it has ended")
	}
}

func (a *kvAdmin) end() { <-a.checking }

// Export implements api.KV.
func (a *kvAdmin) Export(ctx context.Context, w io.Writer, id string) (any, error) {
	s, block, err := a.target(id)
	if err != nil {
		return nil, err
	}
	out, err := s.Export(ctx, w, block)
	return out, kvRefusal(err)
}

// Import implements api.KV.
func (a *kvAdmin) Import(ctx context.Context, r io.Reader) (any, error) {
	s, err := a.store()
	if err != nil {
		return nil, err
	}
	out, err := s.Import(ctx, r)
	return out, kvRefusal(err)
}

// kvRefusal is the table from errors of the store to what a client sees. What it
// does not know goes through, and is told without its internals.
func kvRefusal(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil, errors.As(err, &tooLarge):
		return err
	case errors.Is(err, kvstore.ErrNotFound):
		return &api.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "block_not_found", Param: "id",
			Message: "no such block is held, or it is not pinned; `tandem kv ls` lists what is"}
	case errors.Is(err, kvstore.ErrClosed):
		return api.Busy(http.StatusServiceUnavailable, time.Second, "the node is stopping")
	case errors.Is(err, kvstore.ErrFull):
		return &api.Error{Status: http.StatusInsufficientStorage, Type: "server_error", Code: "disk_full",
			Message: "there is no room for more KV blocks on disk; those before were taken. Give the node more --kv-disk, or evict some"}
	case errors.Is(err, block.ErrInvalid), errors.Is(err, block.ErrDamaged):
		return withStatus(http.StatusBadRequest, "invalid_file", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &api.Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "incomplete_file",
			Message: "the file ends too early: " + err.Error() + "; the blocks before that were taken"}
	}
	return err
}
