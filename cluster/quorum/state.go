package quorum

import (
	"cmp"
	"maps"
	"slices"

	"tandem/cluster/member"
)

// State is what is agreed. A State that was handed out is the receiver's own.
type State struct {
	ClusterID  string `json:"cluster_id"`
	Generation uint64 `json:"generation"` // rises when a survivor was made a cluster of one

	Settings    map[string]string      `json:"settings"` // only those that were set; KnownSettings has the rest
	RolePlan    RolePlan               `json:"role_plan"`
	Assignments map[string][]member.ID `json:"assignments"` // model name → nodes, sorted
	Pins        []string               `json:"pins"`        // prefixes that are kept, opaque here; sorted
	Revocations []string               `json:"revocations"` // names of API keys, fingerprints of secrets; sorted

	// Changes counts what was ever applied in this cluster: two equal counts in one
	// cluster and generation mean equal states.
	Changes uint64 `json:"changes"`
}

// RolePlan says which node should take which role. A node without an entry keeps its
// own choice.
type RolePlan struct {
	Epoch  uint64                    `json:"epoch"` // each plan has the one after the plan that it replaces
	Roles  map[member.ID]member.Role `json:"roles"`
	Reason string                    `json:"reason"` // for people
}

func (s State) clone() State {
	s.Settings = cloneMap(s.Settings)
	s.RolePlan.Roles = cloneMap(s.RolePlan.Roles)
	s.Assignments = cloneMap(s.Assignments)
	for model, nodes := range s.Assignments {
		s.Assignments[model] = slices.Clone(nodes)
	}
	s.Pins = slices.Clone(s.Pins)
	s.Revocations = slices.Clone(s.Revocations)
	return s
}

// cloneMap never returns nil, so that receivers may write.
func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	maps.Copy(out, m)
	return out
}

// machine is the whole state machine: what is agreed, and what this package agrees on
// for itself. All of it is in snapshots.
type machine struct {
	State State `json:"state"`

	// Nodes has the incarnation of every node that was ever let in and not removed.
	Nodes map[member.ID]string `json:"nodes"`

	// Recent holds the ids of the last commands: one that arrives twice, because an
	// answer was lost, is applied once.
	Recent []string `json:"recent"`
}

func newMachine() *machine {
	return &machine{
		State: State{Settings: map[string]string{}, Assignments: map[string][]member.ID{}, RolePlan: RolePlan{Roles: map[member.ID]member.Role{}}},
		Nodes: map[member.ID]string{},
	}
}

// apply does what a command says, or refuses and changes nothing. It depends on
// nothing but the machine and the command.
func (m *machine) apply(c command) error {
	if slices.Contains(m.Recent, c.ID) {
		return nil
	}
	if err := m.check(c); err != nil {
		return err
	}
	s := &m.State
	switch {
	case c.Node != nil && c.Node.Incarnation == "":
		delete(m.Nodes, c.Node.ID)
	case c.Node != nil:
		m.Nodes[c.Node.ID] = c.Node.Incarnation
	case c.Change != nil:
		s.change(*c.Change)
	}
	s.Changes++
	m.Recent = append(m.Recent, c.ID)
	if n := len(m.Recent); n > recentMax {
		m.Recent = slices.Delete(m.Recent, 0, n-recentMax)
	}
	return nil
}

// check refuses what would break a limit. These limits are part of command version 1.
func (m *machine) check(c command) error {
	switch {
	case c.Node != nil:
		if _, known := m.Nodes[c.Node.ID]; !known && c.Node.Incarnation != "" && len(m.Nodes) >= nodesMax {
			return &InvalidError{Field: "nodes", Value: string(c.Node.ID), Allowed: "at most 256 nodes"}
		}
	case c.Change != nil:
		return m.State.check(*c.Change)
	}
	return nil
}

func (s *State) check(c Change) error {
	if p := c.RolePlan; p != nil && p.Epoch != s.RolePlan.Epoch+1 {
		return &StaleError{Have: s.RolePlan.Epoch, Got: p.Epoch}
	}
	settings := len(s.Settings)
	for name := range c.Set {
		if _, known := s.Settings[name]; !known {
			settings++
		}
	}
	if settings > settingsMax {
		return tooMany("set", "settings", settingsMax)
	}
	if a := c.Assign; a != nil {
		if _, known := s.Assignments[a.Model]; !known && len(a.Nodes) > 0 && len(s.Assignments) >= assignmentsMax {
			return tooMany("assign", "assigned models", assignmentsMax)
		}
	}
	if c.Pin != "" && len(s.Pins) >= pinsMax && !slices.Contains(s.Pins, c.Pin) {
		return tooMany("pin", "pins", pinsMax)
	}
	if c.Revoke != "" && len(s.Revocations) >= revocationsMax && !slices.Contains(s.Revocations, c.Revoke) {
		return tooMany("revoke", "revocations", revocationsMax)
	}
	return nil
}

func (s *State) change(c Change) {
	for name, value := range c.Set {
		if value == "" {
			delete(s.Settings, name)
		} else {
			s.Settings[name] = value
		}
	}
	if c.RolePlan != nil {
		s.RolePlan = RolePlan{Epoch: c.RolePlan.Epoch, Roles: cloneMap(c.RolePlan.Roles), Reason: c.RolePlan.Reason}
	}
	if a := c.Assign; a != nil {
		if len(a.Nodes) == 0 {
			delete(s.Assignments, a.Model)
		} else {
			s.Assignments[a.Model] = sortedSet(a.Nodes)
		}
	}
	s.Pins = with(s.Pins, c.Pin, c.Unpin)
	s.Revocations = with(s.Revocations, c.Revoke, c.Unrevoke)
}

func with(set []string, add, remove string) []string {
	if at, found := slices.BinarySearch(set, add); add != "" && !found {
		set = slices.Insert(slices.Clone(set), at, add)
	}
	if at, found := slices.BinarySearch(set, remove); remove != "" && found {
		set = slices.Delete(slices.Clone(set), at, at+1)
	}
	return set
}

func sortedSet[T cmp.Ordered](in []T) []T {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
