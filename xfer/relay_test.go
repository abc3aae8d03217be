package xfer

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// relay stands between nodes, on one UDP and one TCP port of the same number.
type relay struct {
	to  string
	udp *net.UDPConn
	tcp net.Listener
	wg  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	flows    map[string]*net.UDPConn // by client: the socket towards the server
	conns    map[net.Conn]bool
	dropOver int // UDP payloads longer than this are dropped; 0: none
	cutUDP   bool
	cutTCP   bool    // open connections are silent, new ones are closed
	largest  int     // UDP payload that passed
	rate     float64 // bytes/s of each transport and direction; 0: as fast as it can
}

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	r := &relay{to: to, flows: map[string]*net.UDPConn{}, conns: map[net.Conn]bool{}}
	for {
		var err error
		if r.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			t.Fatal(err)
		}
		if r.tcp, err = net.Listen("tcp", r.udp.LocalAddr().String()); err == nil {
			break
		}
		r.udp.Close()
	}
	r.wg.Go(r.fromClients)
	r.wg.Go(r.acceptTCP)
	t.Cleanup(r.close)
	return r
}

func (r *relay) addr() string { return r.udp.LocalAddr().String() }

func (r *relay) set(change func(*relay)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// passes tells whether a packet of n bytes goes through.
func (r *relay) passes(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := !r.cutUDP && (r.dropOver == 0 || n <= r.dropOver)
	if ok {
		r.largest = max(r.largest, n)
	}
	return ok
}

// pace is the time that the bytes of one direction take.
type pace struct{ busy time.Time }

func (p *pace) wait(r *relay, n int) {
	r.mu.Lock()
	rate := r.rate
	r.mu.Unlock()
	if rate == 0 {
		return
	}
	now := time.Now()
	if p.busy.Before(now) {
		p.busy = now
	}
	p.busy = p.busy.Add(time.Duration(float64(n) / rate * 1e9))
	if ahead := p.busy.Sub(now); ahead > time.Millisecond {
		<-time.After(ahead)
	}
}

func (r *relay) fromClients() {
	var pace pace
	buf := make([]byte, 1<<16)
	for {
		n, client, err := r.udp.ReadFromUDP(buf)
		if err != nil {
			return
		}
		if flow := r.flow(client); flow != nil && r.passes(n) {
			pace.wait(r, n)
			flow.Write(buf[:n])
		}
	}
}

func (r *relay) flow(client *net.UDPAddr) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	flow := r.flows[client.String()]
	if flow != nil {
		return flow
	}
	to, _ := net.ResolveUDPAddr("udp", r.to)
	flow, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return nil
	}
	r.flows[client.String()] = flow
	r.wg.Go(func() {
		var pace pace
		buf := make([]byte, 1<<16)
		for {
			n, err := flow.Read(buf)
			if err != nil {
				return
			}
			if r.passes(n) {
				pace.wait(r, n)
				r.udp.WriteToUDP(buf[:n], client)
			}
		}
	})
	return flow
}

// rebind gives every flow a new source port, as a NAT does that forgot.
func (r *relay) rebind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for client, flow := range r.flows {
		flow.Close()
		delete(r.flows, client)
	}
}

func (r *relay) acceptTCP() {
	for {
		client, err := r.tcp.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.to)
		r.mu.Lock()
		if err != nil || r.cutTCP || r.closed {
			r.mu.Unlock()
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		r.conns[client], r.conns[server] = true, true
		r.mu.Unlock()
		r.wg.Go(func() { r.pump(client, server) })
		r.wg.Go(func() { r.pump(server, client) })
	}
}

func (r *relay) pump(to, from net.Conn) {
	defer to.Close()
	var pace pace
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		cut := r.cutTCP
		r.mu.Unlock()
		if !cut {
			pace.wait(r, n)
			to.Write(buf[:n])
		}
		if err == io.EOF || err != nil {
			return
		}
	}
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		c.Close()
	}
	for _, f := range r.flows {
		f.Close()
	}
	r.mu.Unlock()
	r.udp.Close()
	r.tcp.Close()
	r.wg.Wait()
}
