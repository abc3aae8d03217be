package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"tandem/node"
)

// statusWithin bounds the wait for a node that may run here.
const statusWithin = 2 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	var peerPort int
	cmd := &cobra.Command{Use: "doctor [PEER]", Short: "Check this machine, or the way to another node, and say what to do", Args: exactArgs(0, 1, "PEER, or nothing"),
		Long: "Without PEER, doctor checks what a node needs on this machine, and how the node is if one runs.\n" +
			"With PEER, host[:gossip port], it checks the way to that node, joining nothing: name, ports, UDP, packet sizes, secret, versions, clocks, round trip and rate.\n" +
			"It ends with 1 if anything is wrong. Give it the settings that the node has, above all --data-dir or --secret-file.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if peerPort < 0 || peerPort > 65535 {
				return usageError{fmt.Errorf("--peer-port: %d; allowed: 0 to 65535", peerPort)}
			}
			c, _, err := a.config()
			if err != nil {
				return err
			}
			e := node.Examination{Config: c, PeerPort: peerPort}
			if len(args) == 1 {
				if e.Peer = args[0]; e.Peer == "" {
					return usageError{errors.New("PEER is empty; allowed: host, host:port or [IPv6]:port")}
				}
			}
			e.Running, e.Silent = running(cmd.Context(), c)
			return a.examine(cmd.Context(), e, asJSON)
		}}
	cmd.Flags().IntVar(&peerPort, "peer-port", 0, "port of PEER's peer link; 0 is what a node that runs here knows, else one more than its gossip port")
	return jsonFlag(cmd, &asJSON)
}

// running asks the node that may run here how it is. Where nobody answers, both are
// nil.
func running(ctx context.Context, c node.Config) (*node.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	var s node.Status
	var none errNoNode
	switch err := newClient(c).get(ctx, "/admin/status", &s); {
	case errors.As(err, &none):
		return nil, nil
	case err != nil:
		return nil, err
	case s.Node.ID == "":
		return nil, errors.New("it is no node of tandem")
	}
	return &s, nil
}

// examine makes the checks, prints them and fails if something is wrong.
func (a *app) examine(ctx context.Context, e node.Examination, asJSON bool) error {
	checks := []node.Check{}
	wrong := 0
	var printErr error
	e.Each = func(c node.Check) {
		checks = append(checks, c)
		if c.State == node.CheckWrong {
			wrong++
		}
		if !asJSON {
			printErr = errors.Join(printErr, printCheck(a.env.Out, c))
		}
	}
	if err := node.Examine(ctx, e); err != nil {
		return usageError{err}
	}
	if asJSON {
		printErr = printJSON(a.env.Out, checks)
	}
	switch {
	case printErr != nil:
		return printErr
	case wrong == 1:
		return errors.New("one thing is wrong")
	case wrong > 1:
		return fmt.Errorf("%d things are wrong", wrong)
	}
	return nil
}

// printCheck is one line: how it is, what was looked at, what was found, what to do.
// Some of the words come from other machines.
func printCheck(w io.Writer, c node.Check) error {
	remedy := ""
	if c.Remedy != "" {
		remedy = "; remedy: " + c.Remedy
	}
	_, err := fmt.Fprintf(w, "%-8s %s: %s%s\n", c.State, printable(c.Name), printable(c.Found), printable(remedy))
	return err
}
