package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"tandem/node"
	"tandem/node/api"
)

func (a *app) traceCommand() *cobra.Command {
	var follow, asJSON bool
	var limit int
	cmd := &cobra.Command{Use: "trace", Short: "Print the requests that ended lately, one JSON object a line: parts, tokens, node and reason", Args: noArgs,
		Long: "trace prints what the node that answers at --listen remembers of the requests that came in there: how long each waited, computed its prompt and its answer, " +
			"which way its KV came and what the other ways would have taken, and why it was placed where it was.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > api.MaxRecentRequests {
				return usageError{fmt.Errorf("--limit: %d; allowed: 1 to %d", limit, api.MaxRecentRequests)}
			}
			c, _, err := a.config()
			if err != nil {
				return err
			}
			t := &tracePrinter{client: newClient(c), out: a.env.Out}
			if !follow {
				return t.print(cmd.Context(), limit)
			}
			return t.follow(cmd.Context(), limit)
		}}
	cmd.Flags().IntVarP(&limit, "limit", "n", api.MaxRecentRequests, "how many of the last requests")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with those that end from now on")
	return withUsage(jsonFlag(cmd, &asJSON), "json", "the default: one JSON object a line")
}

// withUsage says something else about a flag.
func withUsage(cmd *cobra.Command, flag, usage string) *cobra.Command {
	cmd.Flags().Lookup(flag).Usage = usage
	return cmd
}

// tracePrinter prints requests in the order of their ends, each once.
type tracePrinter struct {
	client *client
	out    io.Writer
	last   uint64 // number of the last one that was printed
}

// print prints at most limit requests that ended since the last call.
func (t *tracePrinter) print(ctx context.Context, limit int) error {
	var recent node.RecentRequests
	if err := t.client.get(ctx, fmt.Sprintf("/admin/requests?after=%d&limit=%d", t.last, limit), &recent); err != nil {
		return err
	}
	enc := json.NewEncoder(t.out)
	for _, r := range recent.Requests {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	t.last = recent.Last
	return nil
}

// follow prints, and prints again whenever an event says that a request has ended. The
// stream of events is opened first, so that none falls between.
func (t *tracePrinter) follow(ctx context.Context, limit int) error {
	resp, err := t.client.do(ctx, http.MethodGet, "/admin/events", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := t.print(ctx, limit); err != nil {
		return err
	}
	err = lines(resp.Body, func(line []byte) error {
		if !bytes.Equal(line, []byte("event: request_finished")) {
			return nil
		}
		return t.print(ctx, api.MaxRecentRequests)
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		return fmt.Errorf("the node ended the stream of events: it stops, or was lost")
	}
	return err
}
