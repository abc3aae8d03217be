package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"tandem/node"
	"tandem/node/api"
)

func (a *app) kvExportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "export FILE [ID]", Short: "Write everything that is kept, or one prefix and what follows it, to a file; - is standard output",
		Args: exactArgs(1, 2, "a file, and the id of a prefix if not all are wanted"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := a.config()
			if err != nil {
				return err
			}
			e, err := a.kvExport(cmd.Context(), newClient(c), args[0], args[1:])
			out := a.env.Out
			if args[0] == "-" {
				out = a.env.Err
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(out, e)
			}
			fmt.Fprintf(out, "exported: %d blocks, %s\n", e.Blocks, size(e.Bytes))
			if e.Skipped > 0 {
				fmt.Fprintf(out, "%d blocks were passed over: they are gone or damaged, or belong to models that were not loaded since the start; load those and export again\n", e.Skipped)
			}
			return nil
		}}
	return jsonFlag(cmd, &asJSON)
}

// kvExport writes the answer of the node to a file, which gets its name only when it
// is whole.
func (a *app) kvExport(ctx context.Context, c *client, name string, ids []string) (e node.KVExported, err error) {
	path := "/admin/kv/export"
	for _, id := range ids {
		p, err := c.findPrefix(ctx, id)
		if err != nil {
			return e, err
		}
		path += "?id=" + url.QueryEscape(p.first)
	}
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return e, err
	}
	defer resp.Body.Close()
	out := a.env.Out
	if name != "-" {
		f, err := os.Create(name + ".part")
		if err != nil {
			return e, err
		}
		defer os.Remove(f.Name()) // it has its name by then, if all went well
		defer f.Close()
		out = f
	}
	p := newProgress(a.env)
	defer p.close()
	if _, err := io.Copy(out, p.reader(resp.Body, "exporting", c.exportSize(ctx, len(ids) == 0))); err != nil {
		return e, fmt.Errorf("export: the node broke off: %w; its log says why", err)
	}
	if err := json.Unmarshal([]byte(resp.Trailer.Get("X-Tandem-KV-Result")), &e); err != nil {
		return e, errors.New("export: the node did not say that the file is whole; try again")
	}
	if f, ok := out.(*os.File); ok && name != "-" {
		return e, errors.Join(f.Close(), os.Rename(f.Name(), name))
	}
	return e, nil
}

// exportSize is about how long an export of everything is; 0: it is not known.
func (c *client) exportSize(ctx context.Context, all bool) int64 {
	var list node.KVPrefixes
	if !all || c.get(ctx, fmt.Sprint("/admin/kv/prefixes?limit=", api.MaxKVPrefixes), &list) != nil || list.Total > len(list.Prefixes) {
		return 0
	}
	var total int64
	for _, p := range list.Prefixes { // blocks of one prefix are equally long
		if p.RAMBlocks > 0 {
			total += p.RAMBytes / int64(p.RAMBlocks) * int64(p.Blocks)
		} else if p.DiskBlocks > 0 {
			total += p.DiskBytes / int64(p.DiskBlocks) * int64(p.Blocks)
		}
	}
	return total
}

func (a *app) kvImportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "import FILE", Short: "Take the blocks of a file that export wrote; - is standard input", Args: exactArgs(1, 1, "a file"),
		RunE: a.adminRun(&asJSON, func(ctx context.Context, c *client, args []string) (any, func(io.Writer) error, error) {
			in, total := a.env.In, int64(0)
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return nil, nil, err
				}
				defer f.Close()
				if info, err := f.Stat(); err == nil {
					total = info.Size()
				}
				in = f
			}
			p := newProgress(a.env)
			defer p.close()
			resp, err := c.send(ctx, http.MethodPost, "/admin/kv/import", "application/octet-stream", p.reader(in, "importing", total))
			if err != nil {
				return nil, nil, err
			}
			defer resp.Body.Close()
			var i node.KVImported
			if err := json.NewDecoder(resp.Body).Decode(&i); err != nil {
				return nil, nil, err
			}
			return i, func(w io.Writer) error { return printImported(w, i) }, nil
		})}
	return jsonFlag(cmd, &asJSON)
}

func printImported(w io.Writer, i node.KVImported) error {
	fmt.Fprintf(w, "imported: %d blocks, %s; %d were held already\n", i.Blocks, size(i.Bytes), i.Held)
	for _, left := range []struct {
		blocks int
		why    string
	}{
		{i.Unknown, "belong to models that were not loaded since the start: send a request to the model and import again"},
		{i.Orphans, "go on from blocks that are not here: export what leads to them, too"},
		{i.Damaged, "are damaged, or were made with another --secret"},
		{i.NoRoom, "found no memory: give the node more --kv-ram"},
	} {
		if left.blocks > 0 {
			fmt.Fprintf(w, "%d blocks were passed over: they %s\n", left.blocks, left.why)
		}
	}
	return nil
}

// reader shows how much of r was read.
func (p *progress) reader(r io.Reader, status string, total int64) io.Reader {
	p.show(api.PullProgress{Status: status, Total: total})
	return &shownReader{r: r, progress: p, status: api.PullProgress{Status: status, Total: total}}
}

type shownReader struct {
	r        io.Reader
	progress *progress
	status   api.PullProgress
}

func (s *shownReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.status.Completed += int64(n)
	if s.status.Total > 0 { // headers make a file a little longer than its blocks
		s.status.Completed = min(s.status.Completed, s.status.Total)
	}
	s.progress.show(s.status)
	return n, err
}
