package node

import (
	"fmt"

	"tandem/cluster/member"
	"tandem/scheduler"
)

// Outlook is what a second box like this one would change over some wire, by the cost
// model: an estimate, nothing was measured.
type Outlook struct {
	Wire      string
	Tokens    int     // of the prompt
	LocalMs   float64 // until it is computed here
	RemoteMs  float64 // until the other box has computed it and its KV is here
	FetchedMs float64 // until its KV, which the other box holds, is here
	Choice    string  // what placement would do where the other box holds nothing
}

// outlookTokens is the prompt of an Outlook: a long document.
const outlookTokens = 8000

// Outlooks are those over usual wires; none if KV of the model cannot move, or nothing
// was measured.
func Outlooks(r ModelRates) []Outlook {
	if r.Measured == nil || r.KVBytes == 0 {
		return nil
	}
	const blockTokens = 64
	here, there := member.ID("here"), member.ID("there")
	load := modelLoad{Name: "m", Ready: true, Loaded: true, Slots: 4}
	load.rates(r)
	var out []Outlook
	for _, wire := range []struct {
		name    string
		goodput float64 // bytes/s, 0.94 of the wire, as TCP has it on Ethernet
	}{{"1 Gbit/s", 0.94 * 1e9 / 8}, {"2.5 Gbit/s", 0.94 * 2.5e9 / 8}, {"10 Gbit/s", 0.94 * 10e9 / 8}, {"100 Gbit/s", 0.94 * 100e9 / 8}} {
		s := scheduler.State{Entry: here, Transfers: true, Nodes: []scheduler.Node{
			{ID: here, Name: "here", State: member.Alive, Role: member.Hybrid, Models: []scheduler.Model{load.known("m", 0)}},
			{ID: there, Name: "there", State: member.Alive, Role: member.Hybrid, Models: []scheduler.Model{load.known("m", 0)}},
		}, Links: []scheduler.Link{{A: here, B: there, Goodput: scheduler.Figure{Value: wire.goodput}, RTTMs: scheduler.Figure{Value: 0.3}}}}
		q := scheduler.Request{Model: "m", Tokens: outlookTokens, BlockTokens: blockTokens, BytesPerToken: r.KVBytes}
		o := Outlook{Wire: wire.name, Tokens: outlookTokens}
		d, err := scheduler.Source(s, q, here)
		if err != nil || len(d.Ways) == 0 {
			continue
		}
		o.Choice = "computed here"
		if d.Ways[0].Kind == scheduler.Remote {
			o.Choice = "computed there"
		}
		for _, w := range d.Ways {
			switch w.Kind {
			case scheduler.Local:
				o.LocalMs = w.Ms
			case scheduler.Remote:
				o.RemoteMs = w.Ms
			}
		}
		q.Holdings = []scheduler.Holding{{Node: there, Run: outlookTokens / blockTokens, FromRAM: outlookTokens / blockTokens}}
		held, err := scheduler.Source(s, q, here)
		if err != nil {
			continue
		}
		for _, w := range held.Ways {
			if w.Kind == scheduler.Fetched {
				o.FetchedMs = w.Ms
			}
		}
		if o.FetchedMs > 0 {
			o.Choice += fmt.Sprintf("; held there, %s", map[bool]string{true: "fetched", false: "computed"}[held.Ways[0].Kind != scheduler.Local])
		}
		out = append(out, o)
	}
	return out
}
