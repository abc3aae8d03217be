package quorum

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

func sampleCommands() []command {
	return []command{
		{Version: 1, ID: "a", Change: &Change{Set: map[string]string{"disagg": "never"}, Pin: "p", Unpin: "q", Revoke: "r", Unrevoke: "s"}},
		{Version: 1, ID: "b", Change: &Change{RolePlan: &RolePlan{Epoch: 1, Roles: map[member.ID]member.Role{nodeID(1): member.Prefill}, Reason: "why"}}},
		{Version: 1, ID: "c", Change: &Change{Assign: &Assignment{Model: "m", Nodes: []member.ID{nodeID(2), nodeID(1), nodeID(2)}}}},
		{Version: 1, ID: "d", Node: &nodeCommand{ID: nodeID(1), Incarnation: "i"}},
		{Version: 1, ID: "e", Node: &nodeCommand{ID: nodeID(1)}},
	}
}

// What is read as a command can be written and read again as the same, and applying it
// keeps the limits and gives the same state twice.
func FuzzCommand(f *testing.F) {
	for _, c := range sampleCommands() {
		data, err := c.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"v":2,"id":"x","change":{}}`))
	f.Add([]byte(`{"v":1,"id":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeCommand(data)
		if err != nil {
			return
		}
		again, err := c.encode()
		if err != nil {
			t.Fatalf("read and not written: %v", err)
		}
		back, err := decodeCommand(again)
		if err != nil || !reflect.DeepEqual(jsonOf(t, back), jsonOf(t, c)) {
			t.Fatalf("%s came back as %s: %v", data, again, err)
		}
		one, two := newMachine(), newMachine()
		for _, m := range []*machine{one, two} {
			_ = m.apply(c)
		}
		if !bytes.Equal(jsonOf(t, one), jsonOf(t, two)) || len(one.State.Pins) > pinsMax || len(one.Recent) > recentMax {
			t.Fatal("two machines differ, or broke a limit")
		}
	})
}

// No entry of the log makes the state machine panic.
func FuzzApply(f *testing.F) {
	for _, c := range sampleCommands() {
		data, _ := c.encode()
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := newFSM(slog.New(slog.DiscardHandler), func() {})
		m.Apply(&raft.Log{Index: 1, Data: data})
	})
}

func FuzzMachine(f *testing.F) {
	m := newMachine()
	for _, c := range sampleCommands() {
		_ = m.apply(c)
	}
	data, err := encodeMachine(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"v":1,"machine":null}`))
	f.Add([]byte(`{"v":1,"machine":{"state":{"assignments":{"m":null}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMachine(data)
		if err != nil {
			return
		}
		for _, c := range sampleCommands() {
			_ = m.apply(c)
		}
		again, err := encodeMachine(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeMachine(again); err != nil {
			t.Fatalf("written and not read: %v", err)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	s, err := encodeSnapshot(&snapshot{meta: raft.SnapshotMeta{Version: 1, ID: "1-1", Index: 1, Term: 1, Size: 3}, data: []byte("abc")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s[4:])
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := decodeSnapshot(seal(body)) // a checksum that fits, so that the rest is reached
		if err != nil {
			return
		}
		again, err := encodeSnapshot(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeSnapshot(again); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add(appendEntry(nil, &raft.Log{Index: 3, Term: 2, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte("x")}))
	f.Add(appendEntry(nil, &raft.Log{Index: 1, Term: 1, Type: raft.LogNoop}))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decodeEntry(data)
		if err != nil {
			return
		}
		if again := appendEntry(nil, l); !bytes.Equal(again, data) {
			t.Fatalf("%x came back as %x", data, again)
		}
	})
}

func FuzzForward(f *testing.F) {
	c := card{ID: nodeID(1), realm: realm{Cluster: "c", Generation: 1, Tag: "t"}, Incarnation: "i", Voters: []member.ID{nodeID(1)}}
	req, _ := json.Marshal(request{Version: 1, Kind: kindWho, Card: c})
	res, _ := json.Marshal(response{Version: 1, Card: c, Code: codeInvalid, Fields: []string{"a", "b", "c"}})
	f.Add(req)
	f.Add(res)
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeRequest(data); err == nil {
			_, _ = resolve(c, r.Card)
		}
		if r, err := decodeResponse(data); err == nil {
			if r.Code != "" && r.err() == nil {
				t.Fatal("a refusal came out as none")
			}
		}
	})
}

func FuzzHello(f *testing.F) {
	var b bytes.Buffer
	if err := writeFrame(&b, hello{Version: 1, From: nodeID(1), To: "i", realm: realm{Cluster: "c"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		var h hello
		if err := readFrame(r, &h); err == nil && len(data)-r.Len() != int(4+binary.BigEndian.Uint32(data)) {
			t.Fatal("it read more or less than the frame")
		}
	})
}

func FuzzMemo(f *testing.F) {
	data, err := memo{realm: realm{Cluster: "c"}, Voters: []member.ID{nodeID(1)}, Machine: newMachine()}.encode()
	if err != nil {
		f.Fatal(err)
	}
	_, body, _ := bytes.Cut(data, []byte("\n"))
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := seal(body)[:4]
		m, err := decodeMemo(append(append([]byte(memoPrefix), hexOf(sum)...), append([]byte("\n"), body...)...))
		if err == nil {
			_ = m.others(nodeID(1))
		}
	})
}

func hexOf(b []byte) []byte {
	const digits = "0123456789abcdef"
	var out []byte
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return out
}

func jsonOf(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
