package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"tandem/node"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "status", Short: "Show what the node does", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.config()
			if err != nil {
				return err
			}
			resp, err := newClient(c).do(cmd.Context(), http.MethodGet, "/admin/status", nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(io.LimitReader(resp.Body, lineLimit))
			if err != nil {
				return err
			}
			if asJSON {
				var pretty bytes.Buffer
				if err := json.Indent(&pretty, data, "", "  "); err != nil {
					return err
				}
				_, err := fmt.Fprintln(a.env.Out, pretty.String())
				return err
			}
			var s node.Status
			if err := json.Unmarshal(data, &s); err != nil {
				return err
			}
			return printStatus(a.env.Out, s)
		}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStatus(out io.Writer, s node.Status) error {
	ready := "ready"
	if !s.Node.Ready {
		ready = "not ready: " + s.Node.Reason
	}
	fmt.Fprintf(out, "%s (%s), %s, %s, up %s\n", s.Node.Name, s.Node.Role, s.Node.Version, ready, time.Duration(s.Node.UptimeSeconds*float64(time.Second)).Round(time.Second))
	fmt.Fprintf(out, "requests: %d running, %d queued\n\n", s.Requests.Running, s.Requests.Queued)
	if err := printMembers(out, s); err != nil {
		return err
	}
	if len(s.Models) == 0 {
		_, err := fmt.Fprintln(out, "no model is loaded; the first request loads one")
		return err
	}
	t := newTable(out, "MODEL", "MEMORY", "SLOTS", "RUNNING", "QUEUED", "KV TOKENS", "KEPT", "UNLOADS")
	for _, m := range s.Models {
		unloads := "never"
		if !m.Expires.IsZero() {
			unloads = humanize.Time(m.Expires)
		}
		t.row(m.Name, humanize.IBytes(uint64(m.MemoryBytes)), fmt.Sprint(m.Slots), fmt.Sprint(m.Running), fmt.Sprint(m.Queued),
			fmt.Sprintf("%d of %d", m.KVTokens, m.KVCells), fmt.Sprint(m.Resident), strings.TrimSpace(unloads))
	}
	return t.flush()
}
