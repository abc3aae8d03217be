package scheduler_test

import (
	"fmt"
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
)

func Example() {
	index := scheduler.NewIndex(scheduler.Limits{})
	chain := chainOf(nil, 1, 32) // of block.Key.Next, for a prompt
	attic := scheduler.NewFeed(7)
	for _, e := range attic.Events(scheduler.Stored, scheduler.RAM, chain[:30]) {
		if err := index.Apply(nodeID(1), e); err != nil {
			fmt.Println(err)
		}
	}
	model := scheduler.Model{
		Name: "llama3.2:3b", Ready: true, Slots: 4,
		PrefillRate: scheduler.Figure{Value: 900, Age: time.Minute},
		Decode:      []scheduler.Pace{{Streams: 1, Ms: 20}},
	}
	now := time.Unix(1_000_000, 0)
	d, err := scheduler.Place(scheduler.State{
		Entry: nodeID(0),
		Nodes: []scheduler.Node{
			{ID: nodeID(0), Name: "desk", State: member.Alive, Models: []scheduler.Model{model}},
			{ID: nodeID(1), Name: "attic", State: member.Alive, Models: []scheduler.Model{model}},
		},
	}, scheduler.Request{Model: "llama3.2:3b", Tokens: 2048, BlockTokens: 64, BytesPerToken: 114_688, Holdings: index.Match(chain, now)})
	if err != nil {
		fmt.Println(err)
		return
	}
	index.Predict(d.Node, chain, now.Add(3*time.Second))
	fmt.Println(d.Reason)
	// Output: attic: 1,920 of 2,048 prompt tokens are kept there in memory; 198 ms against 2,276 ms here
}
