package quorum

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"tandem/cluster/member"
)

// commandVersion is the newest version of commands that this program applies. A
// leader appends nothing newer; a follower that meets something newer ignores it.
const commandVersion = 1

// Change is one step of what is agreed. What is zero is left alone; all parts of one
// Change are made together or not at all.
type Change struct {
	Set      map[string]string `json:"set,omitempty"` // settings; "" goes back to the default
	RolePlan *RolePlan         `json:"role_plan,omitempty"`
	Assign   *Assignment       `json:"assign,omitempty"`
	Pin      string            `json:"pin,omitempty"`
	Unpin    string            `json:"unpin,omitempty"`
	Revoke   string            `json:"revoke,omitempty"`
	Unrevoke string            `json:"unrevoke,omitempty"`
}

// Assignment gives a model to nodes; no nodes takes it back.
type Assignment struct {
	Model string      `json:"model"`
	Nodes []member.ID `json:"nodes,omitempty"`
}

// command is an entry of the log. Exactly one of Node and Change is set.
type command struct {
	Version int          `json:"v"`
	ID      string       `json:"id"` // of the caller's wish, equal in all its repetitions
	Node    *nodeCommand `json:"node,omitempty"`
	Change  *Change      `json:"change,omitempty"`
}

// nodeCommand lets an incarnation of a node in; without one the node is forgotten.
type nodeCommand struct {
	ID          member.ID `json:"id"`
	Incarnation string    `json:"incarnation,omitempty"`
}

var errCommandVersion = errors.New("command of a newer version")

// decodeCommand reads what was appended to the log, or is about to be.
func decodeCommand(data []byte) (command, error) {
	var c command
	if len(data) > commandBytesMax {
		return c, &InvalidError{Field: "change", Value: fmt.Sprintf("%d bytes", len(data)), Allowed: fmt.Sprintf("at most %d bytes", commandBytesMax)}
	}
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return c, fmt.Errorf("command: %w", err)
	}
	if head.Version != commandVersion {
		return c, fmt.Errorf("%w: %d; this program knows %d", errCommandVersion, head.Version, commandVersion)
	}
	if err := decodeStrict(data, &c); err != nil {
		return c, fmt.Errorf("command: %w", err)
	}
	return c, c.validate()
}

func (c command) encode() ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	_, err = decodeCommand(data) // what is appended can be read by everybody
	return data, err
}

// decodeStrict refuses unknown fields and what comes after the value.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("more than one value")
	}
	return nil
}

// validate checks the shape of a command, apart from any state.
func (c command) validate() error {
	if c.ID == "" || len(c.ID) > idBytesMax {
		return &InvalidError{Field: "id", Value: c.ID, Allowed: "1 to 64 bytes"}
	}
	if (c.Node == nil) == (c.Change == nil) {
		return errors.New("command: exactly one of node and change must be there")
	}
	switch {
	case c.Node != nil:
		if _, err := member.ParseID(string(c.Node.ID)); err != nil {
			return err
		}
		if len(c.Node.Incarnation) > idBytesMax {
			return &InvalidError{Field: "incarnation", Value: c.Node.Incarnation, Allowed: "at most 64 bytes"}
		}
		return nil
	default:
		return c.Change.validate()
	}
}

func (c Change) validate() error {
	if len(c.Set) > settingsMax {
		return tooMany("set", "settings", settingsMax)
	}
	for name, value := range c.Set {
		if err := text("set", name, nameBytesMax); err != nil {
			return err
		}
		if len(value) > valueBytesMax || !utf8.ValidString(value) {
			return &InvalidError{Field: name, Value: value, Allowed: fmt.Sprintf("valid UTF-8 of at most %d bytes", valueBytesMax)}
		}
	}
	if c.RolePlan != nil {
		if err := c.RolePlan.validate(); err != nil {
			return err
		}
	}
	if c.Assign != nil {
		if err := c.Assign.validate(); err != nil {
			return err
		}
	}
	for field, value := range map[string]string{"pin": c.Pin, "unpin": c.Unpin, "revoke": c.Revoke, "unrevoke": c.Unrevoke} {
		if value != "" {
			if err := text(field, value, nameBytesMax); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p RolePlan) validate() error {
	if len(p.Roles) > nodesMax {
		return tooMany("role_plan", "nodes", nodesMax)
	}
	if len(p.Reason) > reasonBytesMax || !utf8.ValidString(p.Reason) {
		return &InvalidError{Field: "role_plan.reason", Value: p.Reason, Allowed: fmt.Sprintf("valid UTF-8 of at most %d bytes", reasonBytesMax)}
	}
	for id, role := range p.Roles {
		if _, err := member.ParseID(string(id)); err != nil {
			return err
		}
		if role != member.Hybrid && role != member.Prefill && role != member.Decode {
			return &InvalidError{Field: "role_plan." + id.Short(), Value: string(role), Allowed: "hybrid, prefill or decode"}
		}
	}
	return nil
}

func (a Assignment) validate() error {
	if err := text("assign.model", a.Model, nameBytesMax); err != nil {
		return err
	}
	if len(a.Nodes) > nodesMax {
		return tooMany("assign.nodes", "nodes", nodesMax)
	}
	for _, id := range a.Nodes {
		if _, err := member.ParseID(string(id)); err != nil {
			return err
		}
	}
	return nil
}

// text checks a name: visible, not empty, one line.
func text(field, value string, bytesMax int) error {
	bad := func(r rune) bool { return r < ' ' || r == 0x7f }
	if value == "" || len(value) > bytesMax || !utf8.ValidString(value) || strings.ContainsFunc(value, bad) {
		return &InvalidError{Field: field, Value: value, Allowed: fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", bytesMax)}
	}
	return nil
}
