package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"tandem/node/api"
)

// keysCommand is `keys` with its subcommands, all of which talk to the running node.
func (a *app) keysCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "keys", Short: "List the API keys of the node, without telling them, and revoke keys on all nodes", Args: noArgs,
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
			var list struct {
				Keys []api.KeyInfo `json:"keys"`
			}
			if err := c.get(ctx, "/admin/keys", &list); err != nil {
				return nil, nil, err
			}
			return list.Keys, func(w io.Writer) error { return printKeys(w, list.Keys) }, nil
		})}
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(a.revokeCommand("revoke", "Refuse a key on all nodes from now on, also after restarts", "%s is refused by all nodes; `tandem keys unrevoke %[1]s` ends that"),
		a.revokeCommand("unrevoke", "Accept a revoked key again", "%s is accepted again"))
	return cmd
}

func (a *app) revokeCommand(name, short, done string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: name + " NAME|FINGERPRINT", Short: short, ValidArgsFunction: a.completeKeys, Args: exactArgs(1, 1, "the name or fingerprint of a key, from `tandem keys`"),
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, args []string) (any, func(io.Writer) error, error) {
			var answer map[string]any
			if err := c.post(ctx, "/admin/keys/"+name, map[string]any{"key": args[0]}, &answer); err != nil {
				return nil, nil, err
			}
			return answer, line(done, args[0]), nil
		})}
	return jsonFlag(cmd, &asJSON)
}

func printKeys(w io.Writer, keys []api.KeyInfo) error {
	if len(keys) == 0 {
		return line("the node asks for no API key: only this machine can reach it. --api-key sets one")(w)
	}
	t := newTable(w, "NAME", "FINGERPRINT", "FOR", "REQUESTS/MIN", "TOKENS/MIN", "STATE")
	for _, k := range keys {
		state := "accepted"
		if k.Revoked {
			state = "revoked"
		}
		t.row(k.Name, k.Fingerprint, k.Scopes, orNone(k.RequestsMinute), orNone(k.TokensMinute), state)
	}
	return t.flush()
}
