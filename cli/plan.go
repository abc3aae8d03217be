package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/node"
)

// clusterPlanCommand is `cluster plan`: the roles, and why they are as they are.
func (a *app) clusterPlanCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "plan", Short: "Show which node has which role, why, and what is expected of it", Args: noArgs,
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
			var s node.Status
			if err := c.get(ctx, "/admin/status", &s); err != nil {
				return nil, nil, err
			}
			return s.Planner, func(w io.Writer) error { return printPlan(w, s) }, nil
		})}
	return jsonFlag(cmd, &asJSON)
}

func printPlan(out io.Writer, s node.Status) error {
	p := s.Planner
	fmt.Fprintf(out, "planner %s; plan %d: %s\n", p.Mode, p.Epoch, planWords(p.Plan, p.Reason))
	if p.Taking != "" {
		fmt.Fprintf(out, "%s is %s and will be %s when it has finished %d requests\n", s.Node.Name, p.Role, p.Taking, p.Left)
	} else {
		fmt.Fprintf(out, "%s is %s: %s\n", s.Node.Name, p.Role, p.RoleWhy)
	}
	if says := p.Says; says != nil {
		fmt.Fprintf(out, "\n%s, which leads, at %s:\n", says.Leader, says.Time.Local().Format(time.TimeOnly))
		for _, r := range says.Reasons {
			fmt.Fprintf(out, "  %s\n", r)
		}
		if len(says.Advice) > 0 {
			fmt.Fprintf(out, "  advice: %s\n", planWords(says.Advice, ""))
		}
		if f := says.Forecast; f.RequestsPerSecond > 0 {
			fmt.Fprintf(out, "  forecast (%s): %.2f requests/s of %.0f prompt tokens, %.0f of them kept, and %.0f answer tokens; %.0f ms to the first token, %.0f ms a token, %.0f %% busy\n",
				f.Predictor, f.RequestsPerSecond, f.PromptTokens, f.CachedTokens, f.AnswerTokens, f.TTFTMs, f.ITLMs, f.Utilisation*100)
		}
	}
	if e := p.Estimator; e.Requests > 0 {
		fmt.Fprintf(out, "\nexpected times to the first token missed by %.0f ms (median), %.0f ms (p90), over %d requests placed by %s\n", e.P50Ms, e.P90Ms, e.Requests, s.Node.Name)
	}
	if len(p.History) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := newTable(out, "SINCE", "PLAN", "ROLES", "REASON")
	for _, c := range slices.Backward(p.History) {
		t.row(c.Time.Local().Format(time.DateTime), fmt.Sprint(c.Epoch), planWords(c.Roles, ""), c.Reason)
	}
	return t.flush()
}

// planWords lists roles, or says that there are none, and why.
func planWords(roles map[string]string, reason string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		parts = append(parts, name+" "+roles[name])
	}
	text := "all hybrid"
	if len(parts) > 0 {
		text = strings.Join(parts, ", ")
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

// selfBench waits until the node has measured its model.
func (s *benchNode) selfBench(ctx context.Context) (node.ModelRates, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("the node did not measure its model within 5 minutes"))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var st node.Status
		if err := s.client.get(ctx, "/admin/status", &st); err != nil {
			return node.ModelRates{}, err
		}
		if len(st.Models) > 0 && st.Models[0].Rates.Measured != nil {
			return st.Models[0].Rates, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return node.ModelRates{}, context.Cause(ctx)
		}
	}
}

// printRates shows what a node measured of a model while idle, and what other boxes
// and wires would change.
func printRates(out io.Writer, r node.ModelRates, outlook []node.Outlook) error {
	m := r.Measured
	fmt.Fprintf(out, "\nself-benchmark, lower quartiles of %d rounds\n", m.Rounds)
	t := newTable(out, "MEASURE", "TOKENS", "CONTEXT", "RATE")
	for _, p := range m.Prefill {
		t.row("prefill", fmt.Sprint(p.Tokens), "0", fmt.Sprintf("%.1f tokens/s", float64(p.Tokens)/p.Ms*1000))
	}
	for _, p := range append(slices.Clone(m.Decode), m.DecodeLong) {
		t.row("decode", fmt.Sprintf("%d streams", p.Streams), fmt.Sprint(p.Context), fmt.Sprintf("%.1f tokens/s", float64(p.Streams)*1000/p.Ms))
	}
	if r.Import > 0 {
		t.row("import of KV", "", "", fmt.Sprintf("%.2f GB/s", r.Import/1e9))
		t.row("export of KV", "", "", fmt.Sprintf("%.2f GB/s", r.Export/1e9))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(outlook) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nestimates of the cost model, nothing was measured: a prompt of %d tokens until its first token, with an equal box beside this one\n", outlook[0].Tokens)
	t = newTable(out, "WIRE", "COMPUTED HERE", "COMPUTED THERE", "FETCHED FROM THERE", "SO IT IS")
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	for _, o := range outlook {
		t.row(o.Wire, ms(o.LocalMs), ms(o.RemoteMs), ms(o.FetchedMs), o.Choice)
	}
	return t.flush()
}
