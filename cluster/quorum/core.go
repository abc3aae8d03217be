package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

// core is one running raft over one open store. It is replaced as a whole when the
// node gives its state up or is recovered.
type core struct {
	raft  *raft.Raft
	trans *raft.NetworkTransport
	store *store
	fsm   *fsm
	layer *layer

	waits sync.WaitGroup // goroutines that wait for raft's futures
}

func startCore(c Config, s *store, logger *slog.Logger, changed, led func()) (*core, error) {
	k := &core{store: s, fsm: newFSM(logger, changed)}
	k.layer = newLayer(c.Self, c.Streams, c.rpcLimit(), k.greeting)
	lines := raftLogger(logger)
	k.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: k.layer, MaxPool: 3, Timeout: c.rpcLimit(), Logger: lines,
	})
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(c.Self)
	conf.Logger = lines
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = c.Heartbeat, c.Heartbeat, c.Heartbeat
	conf.CommitTimeout = c.Heartbeat / 5
	conf.ShutdownOnRemove = false
	conf.SnapshotThreshold, conf.TrailingLogs = 512, 256
	conf.SnapshotInterval = 30 * time.Second
	conf.NoLegacyTelemetry = true
	var err error
	if k.raft, err = raft.NewRaft(conf, k.fsm, s, s, s, k.trans); err != nil {
		_ = k.layer.Close()
		_ = k.trans.Close()
		return nil, fmt.Errorf("%s: %w", c.Dir, err)
	}
	k.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if _, ok := o.Data.(raft.LeaderObservation); ok {
			led()
		}
		return false
	}))
	return k, nil
}

// greeting is what a stream of raft's to a node begins with.
func (k *core) greeting(to member.ID) (hello, error) {
	id, shown := k.store.who(), k.fsm.shown.Load()
	nodes := shown.nodes
	if shown.state.Changes < id.Changes {
		nodes = id.Nodes
	}
	incarnation, ok := nodes[to]
	if !ok {
		return hello{}, fmt.Errorf("node %s is not known to this cluster yet", to.Short())
	}
	return hello{Version: helloVersion, From: id.Self, To: incarnation, realm: id.realm}, nil
}

// leader is who leads, as far as this node knows; "" if nobody does.
func (k *core) leader() member.ID {
	_, id := k.raft.LeaderWithID()
	return member.ID(id)
}

// servers is the latest configuration. It does not wait for raft.
func (k *core) servers() []raft.Server {
	return k.raft.GetConfiguration().Configuration().Servers
}

func (k *core) voters() []member.ID {
	var out []member.ID
	for _, s := range k.servers() {
		if s.Suffrage == raft.Voter {
			out = append(out, member.ID(s.ID))
		}
	}
	return sortedSet(out)
}

// await waits for what raft does, no longer than the context lasts. Raft's futures
// know no context, so a goroutine waits for them until they end or raft does.
func (k *core) await(ctx context.Context, start func() raft.Future) error {
	done := make(chan error, 1)
	k.waits.Go(func() { done <- start().Error() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends raft and gives the file back. If the disk does not answer it returns
// before that, when the context ends.
func (k *core) close(ctx context.Context, owner *sync.WaitGroup) error {
	ended := make(chan struct{})
	owner.Go(func() {
		defer close(ended)
		stopped := k.raft.Shutdown()
		_ = k.layer.Close()
		k.store.disk.release()
		_ = stopped.Error()
		k.trans.CloseStreams()
		k.layer.count.Wait()
		k.waits.Wait()
		<-k.store.disk.done
	})
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("raft did not end in time: %w", errors.Join(ctx.Err(), k.troubleError()))
	}
}

func (k *core) troubleError() error {
	if t := k.store.trouble(time.Second); t != "" {
		return errors.New(t)
	}
	return nil
}
