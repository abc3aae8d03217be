package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tandem/node"
)

// Bounds of the live view.
const (
	topRequests = 10                     // requests that ended lately are shown
	topFastest  = 200 * time.Millisecond // the shortest interval
	topSlowest  = time.Hour
	topPatience = 10 * time.Second // a node that does not answer for so long is said to be gone
)

// Sequences that terminals of the last decades know.
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l\x1b[?7l" // another screen, no cursor, long lines are cut
	screenClose = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineRest    = "\x1b[K"
	screenRest  = "\x1b[J"
)

func (a *app) topCommand() *cobra.Command {
	var asJSON bool
	var every time.Duration
	cmd := &cobra.Command{Use: "top", Short: "Watch the nodes, models and requests; Ctrl-C ends it", Args: noArgs,
		Long: "top shows the state of the node that answers at --listen, of the others as it knows them, and the requests that came in there and ended lately.\n" +
			"Where its output is no terminal it prints all that once.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < topFastest || every > topSlowest {
				return usageError{fmt.Errorf("--every: %s; allowed: %s to %s", every, topFastest, topSlowest)}
			}
			c, _, err := a.config()
			if err != nil {
				return err
			}
			v := &topView{client: newClient(c), every: every}
			out, isFile := a.env.Out.(*os.File)
			switch {
			case asJSON:
				if err := v.ask(cmd.Context()); err != nil {
					return err
				}
				return printJSON(a.env.Out, topJSON{v.status, v.recent.Requests})
			case !isFile || !term.IsTerminal(int(out.Fd())):
				if err := v.ask(cmd.Context()); err != nil {
					return err
				}
				return v.print(a.env.Out)
			}
			return v.watch(cmd.Context(), out)
		}}
	cmd.Flags().DurationVar(&every, "every", time.Second, "time between two looks")
	return jsonFlag(cmd, &asJSON)
}

// topJSON is what `top --json` prints.
type topJSON struct {
	Status   node.Status             `json:"status"`
	Requests []*node.RequestTimeline `json:"requests"`
}

// topView is what top shows. It belongs to one goroutine.
type topView struct {
	client *client
	every  time.Duration

	status node.Status
	recent node.RecentRequests
	asked  time.Time
	rates  map[string]tokenRate // by model, between the last two looks
	before map[string]tokenCount
}

type tokenCount struct{ computed, generated int64 }
type tokenRate struct{ prefill, decode float64 } // tokens a second

// ask looks once.
func (v *topView) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	var s node.Status
	if err := v.client.get(ctx, "/admin/status", &s); err != nil {
		return err
	}
	if err := v.client.get(ctx, fmt.Sprintf("/admin/requests?limit=%d", topRequests), &v.recent); err != nil {
		return err
	}
	v.learn(s, time.Now())
	return nil
}

// learn takes over a state and works out rates from the one before. A model that was
// loaded anew counts from zero.
func (v *topView) learn(s node.Status, now time.Time) {
	passed := now.Sub(v.asked).Seconds()
	counts, rates := map[string]tokenCount{}, map[string]tokenRate{}
	for _, m := range s.Models {
		c := tokenCount{m.Computed, m.Generated}
		counts[m.Name] = c
		if old, ok := v.before[m.Name]; ok && passed > 0 && c.computed >= old.computed && c.generated >= old.generated {
			rates[m.Name] = tokenRate{float64(c.computed-old.computed) / passed, float64(c.generated-old.generated) / passed}
		}
	}
	v.status, v.before, v.rates, v.asked = s, counts, rates, now
}

// watch shows the view on a terminal until ctx ends.
func (v *topView) watch(ctx context.Context, out *os.File) error {
	if err := v.ask(ctx); err != nil {
		return err // before the screen is changed
	}
	if _, err := io.WriteString(out, screenOpen); err != nil {
		return err
	}
	defer io.WriteString(out, screenClose)
	tick := time.NewTicker(v.every)
	defer tick.Stop()
	var trouble error
	for {
		_, rows, err := term.GetSize(int(out.Fd())) // it may have changed
		if err != nil {
			rows = 0
		}
		if err := v.draw(out, rows, trouble); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if trouble = v.ask(ctx); trouble != nil && ctx.Err() != nil {
			return nil
		}
	}
}

// draw writes one screen over the one before: as many lines as it has rows, or all if
// rows is 0.
func (v *topView) draw(out io.Writer, rows int, trouble error) error {
	var text, screen bytes.Buffer
	if trouble != nil {
		fmt.Fprintf(&text, "NO ANSWER since %s: %v\n\n", v.asked.Format(time.TimeOnly), printable(trouble.Error()))
	}
	if err := v.print(&text); err != nil {
		return err
	}
	screen.WriteString(screenHome)
	for line := range bytes.Lines(text.Bytes()) {
		if rows--; rows == 0 {
			break // the last row stays empty: a line's end there would scroll
		}
		screen.Write(bytes.TrimRight(line, "\n"))
		screen.WriteString(lineRest + "\r\n")
	}
	screen.WriteString(screenRest)
	_, err := out.Write(screen.Bytes())
	return err
}

func (v *topView) print(out io.Writer) error {
	s := v.status
	ready := "ready"
	if !s.Node.Ready {
		ready = "not ready: " + s.Node.Reason
	}
	fmt.Fprintf(out, "%s  %s  %s  %s  up %s\n", s.Node.Name, s.Node.Role, s.Node.Version, ready, seconds(s.Node.UptimeSeconds))
	fmt.Fprintf(out, "requests %d running, %d queued   KV %s in memory, %s on disk   spared %s tokens\n\n", s.Requests.Running, s.Requests.Queued,
		humanize.IBytes(uint64(s.KV.RAMBytes)), humanize.IBytes(uint64(s.KV.DiskBytes)), humanize.Comma(s.KV.TokensSpared))
	models := newTable(out, "MODEL", "RUNNING", "QUEUED", "KV TOKENS", "PREFILL/S", "DECODE/S", "MEMORY")
	for _, m := range s.Models {
		prefill, decode := "", ""
		if r, ok := v.rates[m.Name]; ok {
			prefill, decode = fmt.Sprintf("%.1f", r.prefill), fmt.Sprintf("%.1f", r.decode)
		}
		models.row(m.Name, fmt.Sprintf("%d of %d", m.Running, m.Slots), fmt.Sprint(m.Queued), fmt.Sprintf("%d of %d", m.KVTokens, m.KVCells), prefill, decode, humanize.IBytes(uint64(m.MemoryBytes)))
	}
	err := models.flush()
	fmt.Fprintln(out)
	err = errors.Join(err, printMembers(out, s))
	requests := newTable(out, "ENDED", "MODEL", "OUTCOME", "PROMPT", "CACHED", "ANSWER", "FIRST", "TOTAL", "NODE", "REASON")
	for i := len(v.recent.Requests) - 1; i >= 0; i-- {
		r := v.recent.Requests[i]
		requests.row(r.Began.Add(time.Duration(r.Seconds*float64(time.Second))).Local().Format(time.TimeOnly), r.Model, r.Outcome, fmt.Sprint(r.PromptTokens), fmt.Sprint(r.CachedTokens),
			fmt.Sprint(r.CompletionTokens), brief(r.TTFTSeconds), brief(r.Seconds), printable(r.Node), printable(clipped(r.Reason, 60)))
	}
	return errors.Join(err, requests.flush())
}

// seconds is a time in whole seconds.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

// brief is a time in a few characters; "" for none.
func brief(s float64) string {
	switch {
	case s <= 0:
		return ""
	case s < 1:
		return fmt.Sprintf("%.0fms", s*1000)
	case s < 100:
		return fmt.Sprintf("%.1fs", s)
	}
	return seconds(s).String()
}

// clipped is the first n characters of a text.
func clipped(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
