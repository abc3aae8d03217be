package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tandem/cluster/member"
)

// Limits of the file of addresses.
const (
	memoryMax     = 64       // nodes
	memoryFileMax = 64 << 10 // bytes
	memoryFile    = "peers"
	memoryHeader  = "# Where this node last saw others: id, gossip address, name. It is used when nobody else can be found."
)

// memory is where other nodes were last seen. It outlives the table, which forgets those
// that are dead, and the process.
type memory struct {
	path string // "": not kept

	mu    sync.Mutex
	byID  map[member.ID]place
	turn  int
	dirty bool
}

type place struct {
	addr netip.AddrPort
	name string
	turn int  // when it was seen last, in order
	left bool // it said goodbye in this run: not looked for until the next
}

// remember reads the memory of earlier runs. A file that cannot be read is none: it is
// a help, not a truth.
func remember(dir string) (*memory, error) {
	m := &memory{byID: map[member.ID]place{}}
	if dir == "" {
		return m, nil
	}
	m.path = filepath.Join(dir, memoryFile)
	f, err := os.Open(m.path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read where other nodes were: %w", err)
	}
	defer func() { _ = f.Close() }()
	m.read(f)
	return m, nil
}

// read takes the lines that it understands.
func (m *memory) read(from io.Reader) {
	lines := bufio.NewScanner(io.LimitReader(from, memoryFileMax))
	for lines.Scan() && len(m.byID) < memoryMax {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		id, err := member.ParseID(fields[0])
		addr, addrErr := netip.ParseAddrPort(fields[1])
		if err != nil || addrErr != nil || addr.Port() == 0 || addr.Addr().IsUnspecified() {
			continue
		}
		name := ""
		if len(fields) > 2 && printable(fields[2]) && len(fields[2]) <= nameMax {
			name = fields[2]
		}
		m.byID[id] = place{addr: addr, name: name}
	}
}

// note remembers where a node is.
func (m *memory) note(id member.ID, name string, addr netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.byID[id]
	m.turn++
	m.byID[id] = place{addr: addr, name: name, turn: m.turn}
	m.dirty = m.dirty || !known || old.addr != addr || old.name != name
	if len(m.byID) > memoryMax {
		delete(m.byID, m.oldestLocked())
	}
}

func (m *memory) oldestLocked() member.ID {
	var oldest member.ID
	for id, p := range m.byID {
		if oldest == "" || p.turn < m.byID[oldest].turn {
			oldest = id
		}
	}
	return oldest
}

// left stops looking for a node that said goodbye; it comes by itself.
func (m *memory) left(id member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.byID[id]; ok {
		p.left = true
		m.byID[id] = p
	}
}

// drop forgets a node that has not been found for long.
func (m *memory) drop(id member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byID, id)
	m.dirty = true
}

// wanted is whom to look for, in the order of their ids.
func (m *memory) wanted() (ids []member.ID, places map[member.ID]place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	places = map[member.ID]place{}
	for id, p := range m.byID {
		if !p.left {
			ids = append(ids, id)
			places[id] = p
		}
	}
	slices.Sort(ids)
	return ids, places
}

// save writes the file if something has changed.
func (m *memory) save() error {
	m.mu.Lock()
	if !m.dirty || m.path == "" {
		m.mu.Unlock()
		return nil
	}
	m.dirty = false
	var b strings.Builder
	b.WriteString(memoryHeader + "\n")
	for id, p := range m.byID {
		name := strings.ReplaceAll(p.name, " ", "_")
		fmt.Fprintf(&b, "%s %s %s\n", id, p.addr, name)
	}
	m.mu.Unlock()
	if err := replaceFile(m.path, []byte(b.String())); err != nil {
		return fmt.Errorf("keep where other nodes are: %w", err)
	}
	return nil
}

// replaceFile changes a file in one step.
func replaceFile(path string, data []byte) error {
	next := path + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
