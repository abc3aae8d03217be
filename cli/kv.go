package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"tandem/node"
	"tandem/node/api"
)

// shownID is how many digits of an id are shown: enough to tell a million blocks
// apart, and accepted wherever an id is.
const shownID = 12

// kvCommand is `kv` with its subcommands, all of which talk to the running node.
func (a *app) kvCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kv", Short: "Show and change the kept KV blocks of the node", Args: noArgs,
		Long: "A prefix of prompts that was computed once is kept as KV blocks, in memory and on disk.\n" +
			"`kv ls` lists what is kept; the other commands take the beginning of an id from there.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.kvListCommand(), a.kvPinCommand("pin", "Protect prefixes, and what leads to them, from eviction", true),
		a.kvPinCommand("unpin", "End the protection of prefixes", false), a.kvEvictCommand(), a.kvVerifyCommand(), a.kvExportCommand(), a.kvImportCommand())
	return cmd
}

// adminRun is the body of a command that prints what it did, as JSON or in words.
func (a *app) adminRun(asJSON *bool, run func(ctx context.Context, c *client, args []string) (result any, words func(io.Writer) error, err error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, _, err := a.config()
		if err != nil {
			return err
		}
		result, words, err := run(cmd.Context(), newClient(c), args)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return printJSON(a.env.Out, result)
		}
		return words(a.env.Out)
	}
}

// line is a result in one line of words.
func line(format string, args ...any) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	}
}

func jsonFlag(cmd *cobra.Command, into *bool) *cobra.Command {
	cmd.Flags().BoolVar(into, "json", false, "print JSON")
	return cmd
}

// kvListing is what `kv ls --json` prints.
type kvListing struct {
	State node.KVState `json:"state"`
	node.KVPrefixes
}

func (a *app) kvListCommand() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the kept prefixes, those used last first", Args: noArgs,
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
			if limit < 1 || limit > api.MaxKVPrefixes {
				return nil, nil, usageError{fmt.Errorf("--limit: %d; allowed: 1 to %d", limit, api.MaxKVPrefixes)}
			}
			var l kvListing
			if err := c.get(ctx, "/admin/kv", &l.State); err != nil {
				return nil, nil, err
			}
			if l.State.Enabled {
				if err := c.get(ctx, fmt.Sprint("/admin/kv/prefixes?limit=", limit), &l.KVPrefixes); err != nil {
					return nil, nil, err
				}
			}
			return l, func(w io.Writer) error { return printKV(w, l) }, nil
		})}
	cmd.Flags().IntVar(&limit, "limit", 50, "most prefixes to list")
	return jsonFlag(cmd, &asJSON)
}

func printKV(out io.Writer, l kvListing) error {
	s := l.State
	if !s.Enabled {
		return line("nothing is kept: %s", s.Reason)(out)
	}
	fmt.Fprintf(out, "memory: %s of %s", size(s.RAM.Bytes), size(s.RAM.Budget))
	if s.Disk.Budget > 0 {
		fmt.Fprintf(out, "; disk: %s of %s", size(s.Disk.Bytes), size(s.Disk.Budget))
	}
	if s.Queue.Blocks > 0 {
		fmt.Fprintf(out, "; %d blocks wait to be written", s.Queue.Blocks)
	}
	fmt.Fprintf(out, "\nspared since the start: %s tokens", humanize.Comma(s.TokensSpared))
	if s.SecondsSpared > 0 {
		fmt.Fprintf(out, ", about %s of computing", aboutSeconds(s.SecondsSpared))
	}
	fmt.Fprintln(out)
	switch {
	case s.DiskFull:
		fmt.Fprintln(out, "the disk is full: blocks stay in memory only")
	case s.DiskFailing:
		fmt.Fprintln(out, "writing to disk fails: blocks stay in memory only; the log says why")
	}
	if c := s.Checks; c.Done > 0 {
		fmt.Fprintf(out, "computed once more: %d restored prompts, of which %d had another text; largest difference %.6f\n", c.Done, c.Different, c.LargestDifference)
	}
	for _, m := range s.Models {
		if m.Loaded && !m.Kept {
			fmt.Fprintf(out, "nothing of %s is kept: %s\n", m.Name, m.Reason)
		}
	}
	fmt.Fprintln(out)
	if len(l.Prefixes) == 0 {
		return line("no prefix is kept yet; requests with at least one whole block of prompt fill this list")(out)
	}
	if err := printPrefixes(out, l.Prefixes); err != nil {
		return err
	}
	if more := l.Total - len(l.Prefixes); more > 0 {
		return line("and %d more; --limit shows them", more)(out)
	}
	return nil
}

func printPrefixes(out io.Writer, prefixes []node.KVPrefix) error {
	keys, words := false, false
	for _, p := range prefixes {
		keys, words = keys || p.Key != "", words || p.Words != ""
	}
	head := []string{"ID", "MODEL", "FROM", "TOKENS", "MEMORY", "DISK", "USES", "SPARED", "USED", "PINNED"}
	if keys {
		head = append(head, "KEY")
	}
	if words {
		head = append(head, "WORDS")
	}
	t := newTable(out, head...)
	for _, p := range prefixes {
		used, pinned := "-", "-"
		if !p.LastUse.IsZero() {
			used = humanize.Time(p.LastUse)
		}
		if p.Pinned {
			pinned = "pinned"
		}
		row := []string{p.ID.String()[:shownID], orDash(p.Model), fmt.Sprint(p.Start), fmt.Sprint(p.Tokens), size(p.RAMBytes), size(p.DiskBytes),
			fmt.Sprint(p.Uses), fmt.Sprint(p.TokensSpared), used, pinned}
		if keys {
			row = append(row, orDash(p.Key))
		}
		if words {
			row = append(row, printable(p.Words))
		}
		t.row(row...)
	}
	return t.flush()
}

// printable takes out what could move the cursor: words come from prompts.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s)
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// aboutSeconds is a duration as precise as an estimate is.
func aboutSeconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func (a *app) kvPinCommand(name, short string, pinned bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: name + " ID...", Short: short, Args: exactArgs(1, 1000, "ids of prefixes, from `kv ls`"),
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, args []string) (any, func(io.Writer) error, error) {
			var done []string
			for _, arg := range args {
				p, err := c.findPrefix(ctx, arg)
				if err != nil {
					return nil, nil, err
				}
				var answer struct{}
				if err := c.post(ctx, "/admin/kv/"+name, map[string]any{"id": p.last}, &answer); err != nil {
					return nil, nil, err
				}
				done = append(done, p.last)
			}
			return map[string]any{"ids": done, "pinned": pinned}, line("%sned: %s", name, strings.Join(done, ", ")), nil
		})}
	return jsonFlag(cmd, &asJSON)
}

func (a *app) kvEvictCommand() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{Use: "evict ID... | --all", Short: "Delete prefixes and what follows them, but not what is pinned or in use", Args: exactArgs(0, 1000, "ids of prefixes, from `kv ls`"),
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, args []string) (any, func(io.Writer) error, error) {
			if all == (len(args) > 0) {
				return nil, nil, usageError{errors.New("kv evict: name ids of prefixes from `kv ls`, or say --all; not both")}
			}
			var total node.KVEvicted
			evict := func(what map[string]any) error {
				var e node.KVEvicted
				err := c.post(ctx, "/admin/kv/evict", what, &e)
				total.RAMBlocks, total.RAMBytes = total.RAMBlocks+e.RAMBlocks, total.RAMBytes+e.RAMBytes
				total.DiskBlocks, total.DiskBytes, total.Kept = total.DiskBlocks+e.DiskBlocks, total.DiskBytes+e.DiskBytes, total.Kept+e.Kept
				return err
			}
			if all {
				args = nil
				if err := evict(map[string]any{"all": true}); err != nil {
					return nil, nil, err
				}
			}
			for _, arg := range args {
				p, err := c.findPrefix(ctx, arg)
				if err == nil {
					err = evict(map[string]any{"id": p.first})
				}
				if err != nil {
					return nil, nil, err
				}
			}
			return total, func(w io.Writer) error { return printEvicted(w, total) }, nil
		})}
	cmd.Flags().BoolVar(&all, "all", false, "evict everything")
	return jsonFlag(cmd, &asJSON)
}

func printEvicted(w io.Writer, e node.KVEvicted) error {
	fmt.Fprintf(w, "evicted: %d blocks (%s) from memory, %d (%s) from disk\n", e.RAMBlocks, size(e.RAMBytes), e.DiskBlocks, size(e.DiskBytes))
	if e.Kept > 0 {
		fmt.Fprintf(w, "%d blocks stay: they are pinned or in use, or lead to such blocks; `kv unpin` ends a pin\n", e.Kept)
	}
	return nil
}

func (a *app) kvVerifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "verify", Short: "Read and check every block; damaged ones are deleted", Args: noArgs,
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, _ []string) (any, func(io.Writer) error, error) {
			var v node.KVVerified
			err := c.post(ctx, "/admin/kv/verify", map[string]any{}, &v)
			return v, func(w io.Writer) error { return printVerified(w, v) }, err
		})}
	return jsonFlag(cmd, &asJSON)
}

func printVerified(w io.Writer, v node.KVVerified) error {
	fmt.Fprintf(w, "verified: %d blocks in memory, %d on disk, %s; %d damaged and deleted\n", v.RAMBlocks, v.DiskBlocks, size(v.Bytes), v.Damaged)
	if v.Missing > 0 {
		fmt.Fprintf(w, "%d blocks were gone or could not be read\n", v.Missing)
	}
	if v.Unknown > 0 {
		fmt.Fprintf(w, "%d blocks belong to models that were not loaded since the start; load those and verify again\n", v.Unknown)
	}
	return nil
}

// foundPrefix are the ids that commands need of a prefix.
type foundPrefix struct{ first, last string }

// findPrefix finds the one prefix whose id begins with some digits. A whole id goes
// to the node as it is, known or not.
func (c *client) findPrefix(ctx context.Context, begin string) (foundPrefix, error) {
	begin = strings.ToLower(begin)
	var list node.KVPrefixes
	if err := c.get(ctx, fmt.Sprint("/admin/kv/prefixes?limit=", api.MaxKVPrefixes), &list); err != nil {
		return foundPrefix{}, err
	}
	var found []foundPrefix
	for _, p := range list.Prefixes {
		if strings.HasPrefix(p.ID.String(), begin) {
			found = append(found, foundPrefix{p.First.String(), p.ID.String()})
		}
	}
	switch {
	case begin == "" || len(found) == 0 && len(begin) != 2*len(node.KVPrefix{}.ID):
		return foundPrefix{}, fmt.Errorf("%q: no kept prefix has an id that begins so; `kv ls` lists them", begin)
	case len(found) == 0:
		return foundPrefix{begin, begin}, nil
	case len(found) > 1:
		return foundPrefix{}, fmt.Errorf("%q: %d kept prefixes have ids that begin so; give more digits", begin, len(found))
	}
	return found[0], nil
}
