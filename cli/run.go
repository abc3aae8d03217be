package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tandem/node"
)

func (a *app) runCommand() *cobra.Command {
	var system string
	var asJSON bool
	cmd := &cobra.Command{Use: "run [MODEL] [PROMPT...]", Short: "Chat in the terminal; with a prompt, answer it and end", ValidArgsFunction: a.completeModels,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := a.config()
			if err != nil {
				return err
			}
			return a.withNode(cmd.Context(), c, func(ctx context.Context, cl *client) error {
				ch := &conversation{client: cl, out: a.env.Out}
				if system != "" {
					ch.messages = append(ch.messages, chatMessage{Role: "system", Content: system})
				}
				if ch.model, args, err = pickModel(ctx, cl, args); err != nil {
					return err
				}
				if len(args) > 0 && asJSON {
					return ch.askJSON(ctx, strings.Join(args, " "))
				}
				if len(args) > 0 {
					return ch.ask(ctx, strings.Join(args, " "))
				}
				if asJSON {
					return usageError{errors.New("--json: a chat cannot be printed as JSON; allowed: with a PROMPT")}
				}
				return a.converse(ctx, ch)
			})
		}}
	cmd.Flags().StringVar(&system, "system", "", "system prompt")
	return withUsage(jsonFlag(cmd, &asJSON), "json", "print the answer of the API to PROMPT as JSON")
}

// askJSON prints the whole answer of the API to one question.
func (c *conversation) askJSON(ctx context.Context, question string) error {
	var answer json.RawMessage
	messages := append(c.messages, chatMessage{Role: "user", Content: question})
	if err := c.client.post(ctx, "/v1/chat/completions", map[string]any{"model": c.model, "messages": messages}, &answer); err != nil {
		return err
	}
	return printJSON(c.out, answer)
}

// withNode calls use with a client of the running node, or of one that lives as
// long as use takes.
func (a *app) withNode(ctx context.Context, c node.Config, use func(context.Context, *client) error) error {
	cl := newClient(c)
	var status any
	err := cl.get(ctx, "/healthz", &status)
	if !errors.As(err, new(errNoNode)) {
		return use(ctx, cl)
	}
	c.Listen, c.LogLevel = "127.0.0.1:0", "error"
	n, err := node.New(c)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() { stop(); <-ended }()
	select {
	case <-n.Listening():
	case err := <-ended:
		ended <- err
		return err
	}
	c.Listen = n.Addr()
	cl = newClient(c)
	if err := n.WaitReady(ctx); err != nil {
		return err
	}
	return use(ctx, cl)
}

// pickModel takes the first argument for a model if the node has one of that
// name, and the node's default otherwise.
func pickModel(ctx context.Context, cl *client, args []string) (string, []string, error) {
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			Default bool   `json:"default"`
		} `json:"data"`
	}
	if err := cl.get(ctx, "/v1/models", &list); err != nil {
		return "", nil, err
	}
	fallback := ""
	for _, m := range list.Data {
		if len(args) > 0 && (m.ID == args[0] || m.ID == args[0]+":latest") {
			return m.ID, args[1:], nil
		}
		if m.Default || fallback == "" {
			fallback = m.ID
		}
	}
	if fallback == "" {
		return "", nil, errors.New("the node has no model; get one with `tandem pull smollm2:135m`")
	}
	if len(args) == 1 {
		return "", nil, fmt.Errorf("model %q is not on this node; `tandem models` lists them, `tandem pull` gets more", args[0])
	}
	return fallback, args, nil
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// conversation is a chat with one model.
type conversation struct {
	client   *client
	out      io.Writer
	model    string
	messages []chatMessage
}

// ask sends the conversation with one more question and prints the answer as it
// comes. A question that fails leaves the conversation as it was.
func (c *conversation) ask(ctx context.Context, question string) error {
	messages := append(c.messages, chatMessage{Role: "user", Content: question})
	resp, err := c.client.do(ctx, http.MethodPost, "/v1/chat/completions", map[string]any{
		"model": c.model, "messages": messages, "stream": true, "stream_options": map[string]any{"include_usage": true}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	start := time.Now()
	var answer strings.Builder
	var first time.Duration
	tokens := 0
	err = lines(resp.Body, func(line []byte) error {
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			return nil
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content          string `json:"content"`
					ReasoningContent string `json:"reasoning_content"`
				} `json:"delta"`
			} `json:"choices"`
			Usage *struct {
				CompletionTokens int `json:"completion_tokens"`
			} `json:"usage"`
			Error *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return err
		}
		if chunk.Error != nil {
			return errors.New(chunk.Error.Message)
		}
		for _, choice := range chunk.Choices {
			if first == 0 && choice.Delta.Content+choice.Delta.ReasoningContent != "" {
				first = time.Since(start)
			}
			answer.WriteString(choice.Delta.Content)
			fmt.Fprint(c.out, choice.Delta.ReasoningContent, choice.Delta.Content)
		}
		if chunk.Usage != nil {
			tokens = chunk.Usage.CompletionTokens
		}
		return nil
	})
	fmt.Fprintln(c.out)
	if err != nil {
		return err
	}
	c.messages = append(messages, chatMessage{Role: "assistant", Content: answer.String()})
	if rest := time.Since(start) - first; tokens > 1 && rest > 0 {
		fmt.Fprintf(c.out, "[%d tokens, first after %d ms, %.1f tokens/s]\n", tokens, first.Milliseconds(), float64(tokens-1)/rest.Seconds())
	}
	return nil
}

// converse reads questions until the input ends or the user types /bye.
func (a *app) converse(ctx context.Context, c *conversation) error {
	read, closeInput := a.lineReader()
	defer closeInput()
	fmt.Fprintf(c.out, "Chat with %s; /bye ends it, /clear forgets it.\n", c.model)
	for {
		line, err := read()
		if err != nil || strings.TrimSpace(line) == "/bye" {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		switch line = strings.TrimSpace(line); line {
		case "":
		case "/clear":
			c.messages = nil
		default:
			if err := c.ask(ctx, line); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				fmt.Fprintln(c.out, "tandem:", err)
			}
		}
	}
}

// lineReader edits lines with history on a terminal and reads plain lines
// elsewhere.
func (a *app) lineReader() (read func() (string, error), closeInput func()) {
	in, ok := a.env.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		sc := bufio.NewScanner(a.env.In)
		sc.Buffer(make([]byte, 64<<10), lineLimit)
		return func() (string, error) {
			if !sc.Scan() {
				if sc.Err() != nil {
					return "", sc.Err()
				}
				return "", io.EOF
			}
			return sc.Text(), nil
		}, func() {}
	}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, a.env.Out}, ">>> ")
	return func() (string, error) {
		// Raw mode only while a line is read: the answer is printed with the
		// terminal's own line ends, and Ctrl-C stops it.
		state, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", err
		}
		defer term.Restore(int(in.Fd()), state)
		return t.ReadLine()
	}, func() {}
}
