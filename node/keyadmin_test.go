package node_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
)

// call sends a request with a key and returns the status.
func callWithKey(t *testing.T, n *nodetest.Node, key, method, path, body string) int {
	t.Helper()
	req, err := http.NewRequest(method, n.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A key that is revoked at one node is refused by all, also by one that starts again
// while there is nobody to agree with.
func TestRevokedKeysAreRefusedEverywhere(t *testing.T) {
	keys := []string{"app:infer=secret-of-app", "root=secret-of-root"}
	nodes := nodetest.StartCluster(t, 2, enginetest.Options{}, func(_ int, c *node.Config) { c.APIKeys = keys })
	models := func(n *nodetest.Node) int { return callWithKey(t, n, "secret-of-app", "GET", "/v1/models", "") }
	for _, n := range nodes {
		if status := models(n); status != 200 {
			t.Fatalf("before: %d", status)
		}
	}
	nodes[0].Until("the revocation is agreed on", func(node.Status) bool {
		return callWithKey(t, nodes[0], "secret-of-root", "POST", "/admin/keys/revoke", `{"key":"app"}`) == 200
	})
	for _, n := range nodes {
		n.Until("the key is refused", func(node.Status) bool { return models(n) == 401 })
	}
	nodes[0].Close()
	nodes[1].Close()

	dir := nodes[1].Dir
	if _, err := os.Stat(filepath.Join(dir, "data", "revoked-keys.json")); err != nil {
		t.Fatal(err)
	}
	again := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) {
		c.APIKeys, c.DataDir, c.Secret, c.Join = keys, filepath.Join(dir, "data"), "the secret of the tests", []string{"127.0.0.1:1"}
	})
	if status := models(again); status != 401 {
		t.Errorf("after a restart alone: %d", status)
	}
	if status := callWithKey(t, again, "secret-of-root", "GET", "/v1/models", ""); status != 200 {
		t.Errorf("the other key: %d", status)
	}
}

func TestAdminCallsAreEvents(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) { c.APIKeys = []string{"root=secret-of-root"} })
	req, _ := http.NewRequest(http.MethodGet, n.URL+"/admin/events", nil)
	req.Header.Set("Authorization", "Bearer secret-of-root")
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		callWithKey(t, n, "secret-of-root", "POST", "/admin/kv/verify", "{}")
	}()
	lines := bufio.NewScanner(events.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || !strings.Contains(data, `"admin_called"`) {
			continue
		}
		var e struct{ Data node.AdminCalled }
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Data.Key != "root" || e.Data.Route != "/admin/kv/verify" || e.Data.Method != "POST" || e.Data.Status != 200 || e.Data.From != "127.0.0.1" {
			t.Errorf("%v, %s", err, data)
		}
		<-asked
		return
	}
	t.Errorf("the stream ended: %v", lines.Err())
}
