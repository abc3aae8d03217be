package cluster

import (
	"testing"

	"tandem/cluster/member"
)

// A node that has failed can be removed; it counts as one that left until it is started
// again. Those that are there cannot.
func TestRemove(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	n3 := run(t, 3, joining(n1))
	all(t, 3, n1, n2, n3)
	for what, id := range map[string]member.ID{"itself": testID(1), "a node that is there": testID(2)} {
		if err := n1.Remove(id); err == nil {
			t.Errorf("n1 removes %s", what)
		}
	}
	if err := n1.Remove(testID(9)); err != nil {
		t.Errorf("a node that nobody knows: %v", err)
	}
	n3.kill()
	until(t, "n1 sees the failure", func() bool { return n1.state(testID(3)) == member.Failed })
	if err := n1.Remove(testID(3)); err != nil {
		t.Fatal(err)
	}
	if state := n1.state(testID(3)); state != member.Left {
		t.Fatalf("a removed node is %s", state)
	}
	if err := n1.Remove(testID(3)); err != nil {
		t.Errorf("once more: %v", err)
	}
	n3 = run(t, 3, joining(n1))
	all(t, 3, n1, n2, n3)
}
