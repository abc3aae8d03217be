package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"tandem/node"
)

// client talks to a running node.
type client struct {
	base string
	key  string
	http *http.Client
}

// errNoNode says that nothing answers at the address.
type errNoNode struct{ base string }

func (e errNoNode) Error() string {
	return fmt.Sprintf("no node answers at %s; start one with `tandem`, or name another with --listen", e.base)
}

// lineLimit bounds one line of a streamed answer: a token with 20 alternatives
// is some kilobytes, a list of models some hundred.
const lineLimit = 4 << 20

func newClient(c node.Config) *client {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		host, port = "127.0.0.1", "9494"
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	cl := &client{base: "http://" + net.JoinHostPort(host, port), http: &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
	}}}
	cl.key = node.FirstKey(c)
	return cl
}

// do sends one request with a JSON body, or none if it is nil, and returns the open
// answer; the caller closes its body. Answers other than 2xx become errors with the
// node's own message.
func (c *client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	if body == nil {
		return c.send(ctx, method, path, "", nil)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, method, path, "application/json", bytes.NewReader(data))
}

// send is do with any body.
func (c *client) send(ctx context.Context, method, path, media string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var opErr *net.OpError
		if errors.As(err, &opErr) && opErr.Op == "dial" {
			return nil, errNoNode{c.base}
		}
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, answerError(resp)
	}
	return resp, nil
}

// answerError takes the message out of an OpenAI or Ollama error body.
func answerError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	var openai struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	var ollama struct {
		Error string `json:"error"`
	}
	message := strings.TrimSpace(string(data))
	if json.Unmarshal(data, &openai) == nil && openai.Error.Message != "" {
		message = openai.Error.Message
	} else if json.Unmarshal(data, &ollama) == nil && ollama.Error != "" {
		message = ollama.Error
	}
	return fmt.Errorf("the node answered %s: %s", resp.Status, message)
}

// get decodes a JSON answer into v.
func (c *client) get(ctx context.Context, path string, v any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}

// post sends a JSON body and decodes the JSON answer into v.
func (c *client) post(ctx context.Context, path string, body, v any) error {
	resp, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}

// lines calls each with every non-empty line of a streamed answer.
func lines(r io.Reader, each func(line []byte) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), lineLimit)
	for sc.Scan() {
		if len(sc.Bytes()) == 0 {
			continue
		}
		if err := each(sc.Bytes()); err != nil {
			return err
		}
	}
	return sc.Err()
}
