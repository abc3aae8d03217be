package cli

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"tandem/node"
)

// notifier tells systemd how the node is, by the protocol of sd_notify: datagrams to
// the socket that NOTIFY_SOCKET names. Without that it does nothing.
type notifier struct {
	addr     *net.UnixAddr
	watchdog time.Duration // within which systemd wants a sign; 0: it does not
}

// notifyTime bounds one datagram: systemd reads at once, or is in trouble itself.
const notifyTime = time.Second

// newNotifier reads what systemd has put into the environment. pid is this process: a
// watchdog may be meant for another one.
func newNotifier(environ []string, pid int) *notifier {
	name := lookup(environ, "NOTIFY_SOCKET")
	if name == "" || !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") {
		return &notifier{}
	}
	n := &notifier{addr: &net.UnixAddr{Name: name, Net: "unixgram"}}
	if p := lookup(environ, "WATCHDOG_PID"); p != "" && p != strconv.Itoa(pid) {
		return n
	}
	if us, err := strconv.ParseInt(lookup(environ, "WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n
}

// send sends lines. That nobody reads them is no reason not to serve.
func (n *notifier) send(lines ...string) {
	if n.addr == nil {
		return
	}
	c, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(notifyTime))
	_, _ = c.Write([]byte(strings.Join(lines, "\n")))
}

// run tells systemd of a node until that has ended: when its port is open, every half
// of the watchdog's time that it still reacts, and when it begins to stop.
func (n *notifier) run(ctx context.Context, served *node.Node) {
	if n.addr == nil {
		return
	}
	select {
	case <-served.Listening():
	case <-served.Closed():
		return
	}
	n.send("READY=1", "STATUS="+fmt.Sprintf("serving at %s", served.Addr()))
	var beat <-chan time.Time
	if n.watchdog > 0 {
		t := time.NewTicker(n.watchdog / 2)
		defer t.Stop()
		beat = t.C
	}
	stop := ctx.Done()
	for {
		select {
		case <-beat:
			// Its state passes all locks of the node: where one is stuck, no sign is
			// given, and systemd starts the node anew. A step of a model may take
			// as long as it likes.
			s, _ := served.Status(context.Background()).(node.Status)
			n.send("WATCHDOG=1", "STATUS="+state(s))
		case <-stop:
			n.send("STOPPING=1", "STATUS=finishing what runs")
			stop = nil
		case <-served.Closed():
			return
		}
	}
}

// state is how a node is, in a line.
func state(s node.Status) string {
	if !s.Node.Ready {
		return "not ready: " + s.Node.Reason
	}
	return fmt.Sprintf("%d requests running, %d queued, %d nodes", s.Requests.Running, s.Requests.Queued, len(s.Cluster.Members))
}
