package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tandem/node"
)

// verifyKVCommand is `verify-kv`.
func (a *app) verifyKVCommand() *cobra.Command {
	var asJSON bool
	var tokens int
	var out node.KVComparison
	cmd := &cobra.Command{Use: "verify-kv", Short: "Compute a prompt cold and from kept blocks, and compare what follows", Args: noArgs,
		Long: "verify-kv lets the running node compute a made-up prompt twice: every token of it, and from the blocks of the first time.\n" +
			"It prints the largest difference of a log-probability over the tokens that follow. It ends with 1 if the greedy texts differ.\n" +
			"--model names the model; without it the node's default one is checked.",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
				request := map[string]any{}
				if model := a.flags["model"]; len(model) > 1 {
					return nil, nil, usageError{errors.New("verify-kv: --model is there more than once; allowed: one model")}
				} else if len(model) == 1 {
					request["model"] = model[0]
				}
				if tokens != 0 {
					request["tokens"] = tokens
				}
				err := c.post(ctx, "/admin/kv/compare", request, &out)
				return out, func(w io.Writer) error { return printComparison(w, out) }, err
			})(cmd, args)
			if err == nil && !out.EqualText {
				err = errors.New("the texts differ")
			}
			return err
		}}
	cmd.Flags().IntVar(&tokens, "tokens", 0, "tokens of the prompt; 0 is 1024, or what fits")
	return jsonFlag(cmd, &asJSON)
}

func printComparison(w io.Writer, c node.KVComparison) error {
	t := newTable(w, "model", c.Model)
	t.row("prompt", fmt.Sprintf("%d tokens, of which %d were restored", c.PromptTokens, c.RestoredTokens))
	t.row("first token", fmt.Sprintf("%s cold, %s restored", milliseconds(c.ColdSeconds), milliseconds(c.RestoredSeconds)))
	t.row("compared", fmt.Sprintf("%d positions, the most likely tokens of each", c.Positions))
	t.row("largest difference", fmt.Sprintf("%.6f of a log-probability", c.LargestDifference))
	if c.EqualText {
		t.row("greedy text", "equal, token for token")
	} else {
		t.row("greedy text", fmt.Sprintf("differs from token %d on, where the cold one led by %.6f", c.DifferentAt+1, c.Margin))
		t.row("  cold", fmt.Sprintf("%q", c.ColdText))
		t.row("  restored", fmt.Sprintf("%q", c.RestoredText))
	}
	return t.flush()
}

func milliseconds(s float64) string { return fmt.Sprintf("%.1f ms", s*1000) }
