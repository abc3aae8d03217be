// Command node is one tandem node and its command line. A built program is
// called bin/node, an installed one tandem.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"tandem/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, cli.Env{Args: os.Args[1:], Environ: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
