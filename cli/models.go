package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tandem/node"
	"tandem/node/api"
)

func (a *app) pullCommand() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{Use: "pull REF", Short: "Get a model: name:tag, hf.co/org/repo[:quant], an https URL, a .gguf file",
		Args: exactArgs(1, 1, "one model reference"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := a.config()
			if err != nil {
				return err
			}
			p := newProgress(a.env)
			defer p.close()
			show := p.show
			if asJSON {
				show = a.showJSON
			}
			err = a.pullThroughNode(cmd.Context(), c, args[0], show)
			if errors.As(err, new(errNoNode)) {
				err = a.withLibrary(c, func(l api.Library) error { return l.Pull(cmd.Context(), args[0], show) })
			}
			if err != nil || !all {
				return err
			}
			return a.spread(cmd.Context(), c, node.ModelName(args[0]), asJSON)
		}}
	cmd.Flags().BoolVar(&all, "all", false, "give it to all other nodes of the cluster, too")
	return withUsage(jsonFlag(cmd, &asJSON), "json", "print the progress as JSON, one object a line")
}

// showJSON prints progress for programs.
func (a *app) showJSON(p api.PullProgress) {
	_ = json.NewEncoder(a.env.Out).Encode(struct {
		Status    string `json:"status"`
		Digest    string `json:"digest,omitempty"`
		Total     int64  `json:"total,omitempty"`
		Completed int64  `json:"completed,omitempty"`
	}{p.Status, p.Digest, p.Total, p.Completed}) // a reader that is gone ends the command by itself
}

// spread gives a model of the running node to all others.
func (a *app) spread(ctx context.Context, c node.Config, model string, asJSON bool) error {
	var to []node.SpreadTo
	if err := newClient(c).post(ctx, "/admin/cluster/spread", map[string]any{"model": model}, &to); err != nil {
		return err
	}
	failed := 0
	for _, t := range to {
		if t.Error != "" {
			failed++
		}
		if asJSON {
			if err := json.NewEncoder(a.env.Out).Encode(t); err != nil {
				return err
			}
			continue
		}
		if t.Error != "" {
			fmt.Fprintf(a.env.Out, "%s did not get it: %s\n", t.Node, t.Error)
		} else {
			fmt.Fprintf(a.env.Out, "%s has it, after %.1f s\n", t.Node, t.Seconds)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d nodes did not get the model", failed, len(to))
	}
	return nil
}

// pullThroughNode lets the running node download, so that it can serve the model
// at once. A path means a file of this machine, which only this process can read.
func (a *app) pullThroughNode(ctx context.Context, c node.Config, ref string, show func(api.PullProgress)) error {
	if node.IsPath(ref) {
		return errNoNode{}
	}
	resp, err := newClient(c).do(ctx, http.MethodPost, "/api/pull", map[string]any{"model": ref})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return lines(resp.Body, func(line []byte) error {
		var p struct {
			Status, Digest, Error string
			Total, Completed      int64
		}
		if err := json.Unmarshal(line, &p); err != nil {
			return err
		}
		if p.Error != "" {
			return errors.New(p.Error)
		}
		show(api.PullProgress{Status: p.Status, Digest: p.Digest, Total: p.Total, Completed: p.Completed})
		return nil
	})
}

// withLibrary opens the model store of the data folder without a node.
func (a *app) withLibrary(c node.Config, use func(api.Library) error) error {
	l, err := node.OpenLibrary(c)
	if err != nil {
		return err
	}
	return use(l)
}

func (a *app) modelsCommand() *cobra.Command {
	var asJSON, quiet bool
	cmd := &cobra.Command{Use: "models", Aliases: []string{"list", "ls"}, Short: "List the models on this machine", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.config()
			if err != nil {
				return err
			}
			var models []api.Model
			err = a.withLibrary(c, func(l api.Library) error {
				models, err = l.List(cmd.Context())
				return err
			})
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return printJSON(a.env.Out, models)
			case quiet:
				for _, m := range models {
					fmt.Fprintln(a.env.Out, m.Name)
				}
				return nil
			}
			t := newTable(a.env.Out, "NAME", "SIZE", "QUANT", "FAMILY", "CHANGED", "FROM")
			for _, m := range models {
				t.row(m.Name, humanize.IBytes(uint64(m.Size)), m.Quantization, m.Family, humanize.Time(m.Modified), m.Source)
			}
			return t.flush()
		}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print names only")
	return cmd
}

func (a *app) removeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "rm NAME", Short: "Delete a model from the data folder", Args: exactArgs(1, 1, "one model name"), ValidArgsFunction: a.completeModels,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := a.config()
			if err != nil {
				return err
			}
			resp, err := newClient(c).do(cmd.Context(), http.MethodDelete, "/api/delete", map[string]any{"model": args[0]})
			switch {
			case errors.As(err, new(errNoNode)):
				err = a.withLibrary(c, func(l api.Library) error { return l.Delete(cmd.Context(), args[0]) })
			case err == nil:
				err = resp.Body.Close()
			}
			if err != nil || !asJSON {
				return err
			}
			return printJSON(a.env.Out, map[string]string{"removed": args[0]})
		}}
	return jsonFlag(cmd, &asJSON)
}

// progress shows a download: a bar on a terminal, a line for every change of
// status elsewhere.
type progress struct {
	env    Env
	tty    bool
	bar    *progressbar.ProgressBar
	status string
	total  int64
}

func newProgress(env Env) *progress {
	f, ok := env.Err.(*os.File)
	return &progress{env: env, tty: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *progress) show(s api.PullProgress) {
	if s.Status != p.status {
		p.close()
		p.status = s.Status
		if s.Total == 0 || !p.tty {
			fmt.Fprintln(p.env.Err, describe(s))
		}
	}
	if s.Total > 0 && p.tty {
		if p.bar == nil || p.total != s.Total {
			p.total = s.Total
			p.bar = progressbar.NewOptions64(s.Total, progressbar.OptionSetWriter(p.env.Err), progressbar.OptionSetDescription(s.Status),
				progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
		}
		p.bar.Set64(s.Completed)
	}
}

func describe(s api.PullProgress) string {
	if s.Total > 0 {
		return fmt.Sprintf("%s (%s)", s.Status, humanize.IBytes(uint64(s.Total)))
	}
	return s.Status
}

func (p *progress) close() {
	if p.bar != nil {
		p.bar.Finish()
		p.bar = nil
	}
}
