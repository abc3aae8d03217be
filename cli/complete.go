package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/node"
	"tandem/node/api"
)

// completionTime bounds what a shell waits for when a person presses Tab.
const completionTime = 2 * time.Second

// completeFlags lets shells complete the values of settings that have a few.
func completeFlags(root *cobra.Command) {
	for _, f := range node.Flags() {
		values := strings.Split(f.Arg, "|")
		if len(values) < 2 {
			if f.Arg == "DIR" {
				_ = root.MarkPersistentFlagDirname(f.Name) // it exists
			}
			continue
		}
		_ = root.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// completeModels completes the first argument with the models of this machine.
func (a *app) completeModels(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const done = cobra.ShellCompDirectiveNoFileComp
	c, _, err := a.config()
	if err != nil || len(args) > 0 {
		return nil, done
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	var names []string
	_ = a.withLibrary(c, func(l api.Library) error {
		list, err := l.List(ctx)
		for _, m := range list {
			names = append(names, m.Name)
		}
		return err
	})
	return names, done
}

// completeKeys completes names of API keys, as the running node tells them.
func (a *app) completeKeys(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const done = cobra.ShellCompDirectiveNoFileComp
	c, _, err := a.config()
	if err != nil || len(args) > 0 {
		return nil, done
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	var list struct {
		Keys []api.KeyInfo `json:"keys"`
	}
	_ = newClient(c).get(ctx, "/admin/keys", &list) // no node, no names
	var names []string
	for _, k := range list.Keys {
		if k.Name != "" {
			names = append(names, k.Name)
		}
	}
	return names, done
}
