package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tandem/node"
)

// Env is what a command line runs in.
type Env struct {
	Args    []string
	Environ []string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
}

// usageError is a fault in what the user wrote: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Run executes one command line and returns the exit status: 0, 1 for a failure,
// 2 for a command line or setting that cannot be used.
func Run(ctx context.Context, env Env) int {
	root := newRoot(env)
	root.SetArgs(env.Args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(env.Err, indentFaults(err))
		return 2
	default:
		fmt.Fprintln(env.Err, "tandem:", err)
		return 1
	}
}

// indentFaults prints one fault a line.
func indentFaults(err error) string {
	return "tandem: " + strings.ReplaceAll(err.Error(), "\n", "\ntandem: ")
}

// app is what the commands share.
type app struct {
	env        Env
	configFile string
	flags      map[string][]string
}

func newRoot(env Env) *cobra.Command {
	a := &app{env: env, flags: map[string][]string{}}
	root := &cobra.Command{
		Use:   "tandem",
		Short: "One LLM server made of the boxes you own",
		Long: "tandem serves GGUF models over the OpenAI, Anthropic and Ollama APIs and a web page.\n" +
			"Without a command it starts a node, like `tandem serve`.",
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	a.addFlags(root.PersistentFlags())
	root.AddCommand(
		&cobra.Command{Use: "serve", Short: "Start a node", Args: noArgs, RunE: root.RunE},
		a.configCommand(), a.versionCommand(), a.pullCommand(), a.modelsCommand(), a.removeCommand(), a.runCommand(), a.statusCommand(), a.doctorCommand(), a.drainCommand(), a.clusterCommand(), a.kvCommand(), a.verifyKVCommand(), a.benchCommand(), a.calcCommand(), a.simCommand(),
		a.topCommand(), a.traceCommand(), a.keysCommand(), a.serviceCommand(),
	)
	completeFlags(root)
	return root
}

// noArgs is cobra.NoArgs with our exit status and a hint.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q: unknown command or argument; `%s --help` lists what there is", args[0], cmd.CommandPath())}
	}
	return nil
}

// exactArgs wants between low and high arguments, named in the message.
func exactArgs(low, high int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usageError{fmt.Errorf("%s: got %d arguments; allowed: %s", cmd.CommandPath(), len(args), names)}
		}
		return nil
	}
}

// addFlags makes a flag of every option of the node. Values are only collected
// here; node.LoadConfig parses them together with the other sources.
func (a *app) addFlags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&a.configFile, "config", "", "YAML file with any of these settings")
	for _, f := range node.Flags() {
		usage := f.Usage + " (" + f.Env + ")"
		if f.Default != "" {
			usage = f.Usage + ", default " + f.Default + " (" + f.Env + ")"
		}
		fs.Var(&collector{name: f.Name, arg: f.Arg, list: f.List, into: a.flags}, f.Name, usage)
	}
}

// collector is a pflag.Value that keeps the text of a flag.
type collector struct {
	name, arg string
	list      bool
	into      map[string][]string
}

func (c *collector) String() string { return "" }
func (c *collector) Type() string   { return c.arg }
func (c *collector) Set(v string) error {
	if c.list {
		c.into[c.name] = append(c.into[c.name], v)
	} else {
		c.into[c.name] = []string{v}
	}
	return nil
}

// config merges the sources.
func (a *app) config() (node.Config, []node.Setting, error) {
	s := node.Sources{Env: a.env.Environ, Flags: a.flags}
	name := a.configFile
	if name == "" {
		name = lookup(a.env.Environ, "NODE_CONFIG")
	}
	if name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return node.Config{}, nil, usageError{fmt.Errorf("--config: %w", err)}
		}
		s.YAMLName = name
		if s.YAML, err = node.ReadYAML(data); err != nil {
			return node.Config{}, nil, usageError{fmt.Errorf("%s: %w", name, err)}
		}
	}
	c, settings, err := node.LoadConfig(s)
	if err != nil {
		return c, settings, usageError{err}
	}
	return c, settings, nil
}

func lookup(environ []string, name string) string {
	for _, kv := range environ {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}

func (a *app) configCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "config", Short: "Show every setting, its value and where it came from", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, settings, err := a.config()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.env.Out, settings)
			}
			t := newTable(a.env.Out, "SETTING", "VALUE", "FROM")
			for _, s := range settings {
				t.row(s.Name, s.Value, s.Origin)
			}
			return t.flush()
		}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// serve runs a node until the context ends.
func (a *app) serve(ctx context.Context) error {
	c, _, err := a.config()
	if err != nil {
		return err
	}
	n, err := node.New(c)
	if err != nil {
		return err
	}
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		select {
		case <-n.Listening():
			fmt.Fprint(a.env.Out, n.Welcome())
		case <-ctx.Done():
		case <-n.Closed():
		}
	}()
	told := make(chan struct{})
	go func() {
		defer close(told)
		newNotifier(a.env.Environ, os.Getpid()).run(ctx, n)
	}()
	err = n.Run(ctx)
	<-announced
	<-told
	return err
}
