package quorum

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

const machineVersion = 1

// machineFile is how a machine lies in a snapshot.
type machineFile struct {
	Version int      `json:"v"`
	Machine *machine `json:"machine"`
}

// published is what others may see of the machine, replaced as a whole.
type published struct {
	state State
	nodes map[member.ID]string
	index uint64 // of the last entry that was applied
}

// fsm is raft's view of the machine. Raft calls it from one goroutine.
type fsm struct {
	logger  *slog.Logger
	machine *machine
	shown   atomic.Pointer[published]
	changed func() // called after each change; must not block
}

func newFSM(logger *slog.Logger, changed func()) *fsm {
	f := &fsm{logger: logger, machine: newMachine(), changed: changed}
	f.shown.Store(&published{nodes: map[member.ID]string{}})
	return f
}

// Apply does what an entry says. What it returns goes to whoever proposed it: an
// error means that the machine refused it, as it does on every node.
func (f *fsm) Apply(l *raft.Log) any {
	c, err := decodeCommand(l.Data)
	if err != nil {
		f.logger.Warn("ignored an entry of the cluster's log that this program does not understand; nodes of different versions may show different states", "index", l.Index, "error", err)
		return err
	}
	if err := f.machine.apply(c); err != nil {
		f.show(l.Index)
		return err
	}
	f.show(l.Index)
	f.changed()
	return nil
}

// show publishes the machine as it is now.
func (f *fsm) show(index uint64) {
	f.shown.Store(&published{state: f.machine.State.clone(), nodes: cloneMap(f.machine.Nodes), index: index})
}

// Snapshot makes the bytes at once, so that nothing is shared with the machine.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	data, err := encodeMachine(f.machine)
	return fsmSnapshot(data), err
}

// Restore replaces the machine.
func (f *fsm) Restore(r io.ReadCloser) error {
	data, err := io.ReadAll(io.LimitReader(r, snapshotBytesMax+1))
	if err != nil {
		return err
	}
	m, err := decodeMachine(data)
	if err != nil {
		return err
	}
	f.machine = m
	f.show(0)
	f.changed()
	return nil
}

func encodeMachine(m *machine) ([]byte, error) {
	data, err := json.Marshal(machineFile{Version: machineVersion, Machine: m})
	if err == nil && len(data) > snapshotBytesMax {
		return nil, fmt.Errorf("state of %d bytes; the most is %d", len(data), snapshotBytesMax)
	}
	return data, err
}

func decodeMachine(data []byte) (*machine, error) {
	if len(data) > snapshotBytesMax {
		return nil, fmt.Errorf("state of %d bytes; the most is %d", len(data), snapshotBytesMax)
	}
	f := machineFile{Machine: newMachine()}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if f.Version != machineVersion {
		return nil, fmt.Errorf("state of version %d; this program knows %d", f.Version, machineVersion)
	}
	if f.Machine == nil {
		return nil, errors.New("state: it is empty")
	}
	return f.Machine.normal(), nil
}

// normal makes the maps that JSON may have left out.
func (m *machine) normal() *machine {
	m.State = m.State.clone()
	m.Nodes = cloneMap(m.Nodes)
	return m
}

// fsmSnapshot is an encoded machine.
type fsmSnapshot []byte

// Persist writes it.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

// Release has nothing to give back.
func (s fsmSnapshot) Release() {}
