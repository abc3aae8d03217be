package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tandem/node"
)

func (a *app) drainCommand() *cobra.Command {
	var asJSON, undo bool
	cmd := &cobra.Command{Use: "drain", Short: "Give the node no new work; what runs goes on to its end", Args: noArgs,
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
			var d node.Draining
			if err := c.post(ctx, "/admin/cluster/drain", map[string]any{"on": !undo}, &d); err != nil {
				return nil, nil, err
			}
			words := line("the node gets no new work; %d requests still run. `tandem drain --undo` ends this", d.Running)
			if undo {
				words = line("the node gets work again")
			}
			return d, words, nil
		})}
	cmd.Flags().BoolVar(&undo, "undo", false, "give it work again")
	return jsonFlag(cmd, &asJSON)
}

// clusterCommand is `cluster` with its subcommands, all of which talk to the running
// node.
func (a *app) clusterCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "cluster", Short: "Show and change what the nodes have agreed on", Args: noArgs,
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
			var agreed node.Agreed
			if err := c.get(ctx, "/admin/cluster/settings", &agreed); err != nil {
				return nil, nil, err
			}
			return agreed, func(w io.Writer) error { return printAgreed(w, agreed) }, nil
		})}
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(a.clusterPlanCommand(), a.clusterSetCommand(), a.clusterRecoverCommand())
	return cmd
}

func (a *app) clusterSetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "set NAME VALUE", Short: "Change a setting of all nodes", Args: exactArgs(2, 2, "NAME VALUE"),
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, args []string) (any, func(io.Writer) error, error) {
			var agreed node.Agreed
			if err := c.post(ctx, "/admin/cluster/settings", map[string]any{"name": args[0], "value": args[1]}, &agreed); err != nil {
				return nil, nil, err
			}
			return agreed, line("%s is %s on all nodes", args[0], args[1]), nil
		})}
	return jsonFlag(cmd, &asJSON)
}

func (a *app) clusterRecoverCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "recover", Short: "Make the node a cluster of one, after a majority was lost for good", Args: noArgs,
		Long: "While most voters are gone the nodes that are left answer requests, but nothing can be agreed on.\n" +
			"If those voters will not come back, this makes the node the only voter. Others join it anew when they return.",
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
			var agreed node.Agreed
			if err := c.post(ctx, "/admin/cluster/recover", map[string]any{}, &agreed); err != nil {
				return nil, nil, err
			}
			return agreed, line("the node is a cluster of one; others join it when they return"), nil
		})}
	return jsonFlag(cmd, &asJSON)
}

func printAgreed(out io.Writer, a node.Agreed) error {
	if a.Quorum {
		fmt.Fprintf(out, "cluster %s, led by %s\n\n", a.Cluster, a.Leader.Short())
	} else {
		fmt.Fprintf(out, "cluster %s cannot change anything: %s\n\n", a.Cluster, a.Reason)
	}
	t := newTable(out, "SETTING", "VALUE", "DEFAULT", "ALLOWED")
	for _, s := range a.Settings {
		t.row(s.Name, s.Value, s.Default, s.Allowed)
	}
	return t.flush()
}

// printMembers shows the nodes of a cluster of several.
func printMembers(out io.Writer, s node.Status) error {
	if len(s.Cluster.Members) < 2 {
		return nil
	}
	links := map[string]node.PeerLink{}
	for _, l := range s.Cluster.Links {
		links[l.ID] = l
	}
	t := newTable(out, "NODE", "STATE", "ROLE", "ADDRESS", "LINK", "LEADS")
	for _, m := range s.Cluster.Members {
		link, leads := "", ""
		if l, ok := links[m.ID]; ok {
			link = fmt.Sprintf("%s, %.1f ms", l.Transport, l.RTTMs)
		} else if m.ID == s.Node.ID {
			link = "this node"
		}
		if m.ID == s.Cluster.Leader {
			leads = "yes"
		}
		t.row(m.Name, m.State, m.Role, m.Addr, link, leads)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if !s.Cluster.Quorum {
		fmt.Fprintf(out, "nothing can be changed: %s\n", s.Cluster.Reason)
	}
	for _, p := range s.Cluster.Problems {
		fmt.Fprintln(out, p)
	}
	_, err := fmt.Fprintln(out)
	return err
}
