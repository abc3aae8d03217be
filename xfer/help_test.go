package xfer

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"sync"
	"testing"
	"time"

	"tandem/cluster/member"
)

// testIdentity is an Identity of a CA that anybody with the same secret derives.
type testIdentity struct {
	pool *x509.CertPool
	cert tls.Certificate
}

func newTestIdentity(tb testing.TB, secret string, self member.ID) *testIdentity {
	tb.Helper()
	seed := sha256.Sum256([]byte("test ca " + secret))
	caKey := ed25519.NewKeyFromSeed(seed[:])
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		tb.Fatal(err)
	}
	parsed, _ := x509.ParseCertificate(caDER)
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	node := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{string(self)}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, node, ca, key.Public(), caKey)
	if err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &testIdentity{pool: pool, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

func (i *testIdentity) ServerTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.cert}, ClientCAs: i.pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

func (i *testIdentity) ClientTLS(want member.ID) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.cert}, RootCAs: i.pool, ServerName: string(want)}
}

func (i *testIdentity) PeerID(s tls.ConnectionState) (member.ID, error) {
	if len(s.PeerCertificates) == 0 || len(s.PeerCertificates[0].DNSNames) != 1 {
		return "", errors.New("no certificate")
	}
	return member.ParseID(s.PeerCertificates[0].DNSNames[0])
}

// nodeID is the id of node n of a test.
func nodeID(n int) member.ID { return member.ID(fmt.Sprintf("%032x", n)) }

// quick are timings for tests: shorter than the real ones, and long enough for a
// busy machine.
var quick = Timings{QUIC: 1500 * time.Millisecond, TCP: 3 * time.Second, Retry: 500 * time.Millisecond, KeepAlive: 250 * time.Millisecond,
	DeadAfter: 1500 * time.Millisecond, Suspect: 700 * time.Millisecond, Open: 8 * time.Second, Header: 2 * time.Second, Retire: 400 * time.Millisecond}

// addressBook tells links where the others are.
type addressBook struct {
	mu    sync.Mutex
	addrs map[member.ID][]string
}

func (b *addressBook) get(id member.ID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addrs[id]
}

func (b *addressBook) set(id member.ID, addrs ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.addrs == nil {
		b.addrs = map[member.ID][]string{}
	}
	b.addrs[id] = addrs
}

// logs collects what links log.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.b.Bytes(), []byte(what))
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// startLink makes node n; change may alter its configuration.
func startLink(tb testing.TB, n int, book *addressBook, change func(*Config)) *Link {
	tb.Helper()
	cfg := Config{Self: nodeID(n), Listen: "127.0.0.1:0", Address: book.get, Cluster: "cluster-a", Program: "test", Timings: quick}
	if change != nil {
		change(&cfg)
	}
	if cfg.Identity == nil {
		cfg.Identity = newTestIdentity(tb, "secret", cfg.Self)
	}
	l, err := Listen(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	book.set(cfg.Self, l.Addr())
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			tb.Errorf("close node %d: %v", n, err)
		}
	})
	return l
}

// transports runs a test over everything that carries streams: between two nodes
// by QUIC and by TCP, and from a node to itself.
func transports(t *testing.T, test func(t *testing.T, from, to *Link)) {
	for _, kind := range []Transport{QUIC, TCP, Loop} {
		t.Run(string(kind), func(t *testing.T) {
			book := &addressBook{}
			tcpOnly := func(c *Config) { c.TCPOnly = kind == TCP }
			a := startLink(t, 1, book, tcpOnly)
			b := a
			if kind != Loop {
				b = startLink(t, 2, book, tcpOnly)
			}
			test(t, a, b)
		})
	}
}

// within is a context for one step of a test.
func within(tb testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	tb.Cleanup(cancel)
	return ctx
}

func open(tb testing.TB, from, to *Link, service string) *Stream {
	tb.Helper()
	s, err := from.Open(within(tb, 5*time.Second), to.cfg.Self, service)
	if err != nil {
		tb.Fatal(err)
	}
	s.SetDeadline(time.Now().Add(20 * time.Second))
	return s
}

// until polls a condition.
func until(tb testing.TB, what string, d time.Duration, ok func() bool) {
	tb.Helper()
	deadline := time.After(d)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("not within %v: %s", d, what)
		}
	}
}

func echo(ctx context.Context, s *Stream) error {
	_, err := io.Copy(s, s)
	return err
}

// echoMessages answers each message with itself.
func echoMessages(ctx context.Context, s *Stream) error {
	for {
		m, err := ReadMessage(s, MessageMax)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := WriteMessage(s, m); err != nil {
			return err
		}
	}
}

func status(l *Link, id member.ID) PeerStatus {
	for _, p := range l.Peers() {
		if p.ID == id {
			return p
		}
	}
	return PeerStatus{}
}

// noStreams waits until no stream is left on any connection.
func noStreams(tb testing.TB, links ...*Link) {
	tb.Helper()
	for _, l := range links {
		until(tb, "no streams", 5*time.Second, func() bool {
			l.mu.Lock()
			conns := []*conn{l.loop}
			for _, p := range l.peers {
				conns = append(conns, p.conns...)
			}
			l.mu.Unlock()
			for _, c := range conns {
				c.mu.Lock()
				busy := len(c.streams) > 0 || c.serving > 0 || len(c.places) > 0
				c.mu.Unlock()
				if busy {
					return false
				}
			}
			return true
		})
	}
}
