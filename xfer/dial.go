package xfer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"tandem/cluster/member"
)

// stagger is the lead that a better address of a peer has.
const stagger = 150 * time.Millisecond

// dialler makes a connection to one address, up to TLS.
type dialler func(ctx context.Context, addr string, n lane, tlsConfig *tls.Config) (session, tls.ConnectionState, error)

// dial connects to a peer: QUIC at all its addresses, then TCP. Where QUIC has failed
// lately it is left out.
func (l *Link) dial(ctx context.Context, p *peer) (*conn, error) {
	addrs := l.cfg.Address(p.id)
	addrs = addrs[:min(len(addrs), addressesMax)]
	failed := &UnreachableError{Peer: p.id}
	if len(addrs) == 0 {
		return nil, failed
	}
	l.mu.Lock()
	tryQUIC := !l.cfg.TCPOnly && !time.Now().Before(p.quicNext)
	l.mu.Unlock()
	var quicErrs []error
	if tryQUIC {
		c, err := l.race(ctx, p.id, QUIC, controlLane, addrs)
		var refused *RefusedError
		switch {
		case err == nil:
			return c, nil
		case errors.As(err, &refused):
			return nil, refused
		}
		quicErrs = flat(err)
	}
	c, err := l.race(ctx, p.id, TCP, controlLane, addrs)
	if err == nil {
		if tryQUIC {
			l.noteFallback(p, c.sess.remote().String(), errors.Join(quicErrs...))
		}
		return c, nil
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		return nil, refused
	}
	failed.Errs = append(quicErrs, flat(err)...)
	return nil, failed
}

// flat takes joined errors apart.
func flat(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// noteFallback remembers, and says once, that a peer is reached by TCP only.
func (l *Link) noteFallback(p *peer, addr string, cause error) {
	now := time.Now()
	l.mu.Lock()
	first := p.quicDown.IsZero()
	if first {
		p.quicDown = now
	}
	p.quicNext = now.Add(l.cfg.Timings.Retry)
	p.quicError = fmt.Sprintf("node %s at %s does not answer by QUIC, so TLS over TCP is used, which works as well but slower on bad links: let UDP with the same port number pass (%v)", p.id.Short(), addr, cause)
	text := p.quicError
	l.mu.Unlock()
	if first {
		l.log.Warn(text, "peer", p.id, "again_in", l.cfg.Timings.Retry)
	}
}

// upgrade tries QUIC to a peer that is connected by TCP.
func (l *Link) upgrade(p *peer) {
	addrs := l.cfg.Address(p.id)
	c, err := l.race(l.ctx, p.id, QUIC, controlLane, addrs[:min(len(addrs), addressesMax)])
	if err == nil {
		l.adopt(c)
	}
}

// race tries all addresses, the better ones first, and takes the first connection.
// The error joins those of the addresses; a refusal comes alone.
func (l *Link) race(ctx context.Context, to member.ID, kind Transport, n lane, addrs []string) (*conn, error) {
	limit, dial := l.cfg.Timings.QUIC, dialler(l.dialQUIC)
	if kind == TCP {
		limit, dial = l.cfg.Timings.TCP, l.dialTCP
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type result struct {
		c   *conn
		err error
	}
	results := make(chan result)
	for i, addr := range addrs {
		go func() { // its result is always taken below
			c, err := l.try(ctx, to, kind, n, addr, dial, time.Duration(i)*stagger)
			results <- result{c, err}
		}()
	}
	var won *conn
	var refused *RefusedError
	var errs []error
	for range addrs {
		r := <-results
		var no *RefusedError
		switch {
		case r.err == nil && won == nil:
			won = r.c
			cancel()
		case r.err == nil:
			r.c.fail(ErrClosed, &frame{Type: frameBye, Code: CodeClosing, Text: "another address was faster"})
		case errors.As(r.err, &no):
			refused = no
		default:
			errs = append(errs, r.err)
		}
	}
	switch {
	case won != nil:
		return won, nil
	case refused != nil:
		l.warnRefused(refused)
		return nil, refused
	}
	return nil, errors.Join(errs...)
}

// try makes a connection to one address, with both hellos.
func (l *Link) try(ctx context.Context, to member.ID, kind Transport, n lane, addr string, dial dialler, after time.Duration) (*conn, error) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	what := fmt.Errorf("%s %s", kind, addr)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", what, context.Cause(ctx))
	}
	sess, state, err := dial(ctx, addr, n, withALPN(l.cfg.Identity.ClientTLS(to)))
	if err != nil {
		return nil, l.tried(ctx, what, err, to, addr)
	}
	id, err := l.cfg.Identity.PeerID(state)
	if err == nil && id != to {
		err = fmt.Errorf("there is node %s, not node %s", id.Short(), to.Short())
	}
	if err != nil {
		sess.close(&frame{Code: CodeIdentity, Text: err.Error()}, nil)
		return nil, l.tried(ctx, what, &identityError{err}, to, addr)
	}
	c, err := l.greetDialled(ctx, sess, kind, n, id)
	if err != nil {
		sess.close(nil, nil)
		return nil, l.tried(ctx, what, err, to, addr)
	}
	return c, nil
}

// tried explains why an address did not give a connection.
func (l *Link) tried(ctx context.Context, what, err error, to member.ID, addr string) error {
	if refused := refusedBecause(err, to, addr); refused != nil {
		return refused
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: no answer", what)
	}
	return fmt.Errorf("%w: %w", what, err)
}

// acceptQUIC takes connections until the link is closed.
func (l *Link) acceptQUIC(incoming *quic.Listener) {
	for {
		conn, err := incoming.Accept(l.ctx)
		if err != nil {
			return
		}
		sess := &quicSession{conn: conn}
		if !l.receive(func(ctx context.Context) (session, tls.ConnectionState, error) {
			return sess, conn.ConnectionState().TLS, nil
		}, QUIC, conn.RemoteAddr()) {
			sess.close(&frame{Code: CodeBusy, Text: "too many connections are being made"}, nil)
		}
	}
}

// acceptTCP takes connections until the link is closed.
func (l *Link) acceptTCP() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		tcp, err := l.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely
			pause.Reset(100 * time.Millisecond)
			select {
			case <-pause.C:
			case <-l.ctx.Done():
				return
			}
			continue
		}
		if !l.receive(func(ctx context.Context) (session, tls.ConnectionState, error) {
			secured := tls.Server(tcp, withALPN(l.cfg.Identity.ServerTLS()))
			if err := secured.HandshakeContext(ctx); err != nil {
				tcp.Close()
				return nil, tls.ConnectionState{}, err
			}
			sess, err := newTCPSession(tcp, secured, controlLane, false)
			return sess, secured.ConnectionState(), err
		}, TCP, tcp.RemoteAddr()) {
			tcp.Close()
		}
	}
}

// receive takes one connection up to its hello, in a goroutine. It tells false if
// too many are at that point, or the link is closed.
func (l *Link) receive(secure func(context.Context) (session, tls.ConnectionState, error), kind Transport, from net.Addr) bool {
	select {
	case l.greeting <- struct{}{}:
	default:
		return false
	}
	ok := l.start(func() {
		defer func() { <-l.greeting }()
		ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Timings.TCP)
		defer cancel()
		if err := l.received(ctx, secure, kind); err != nil {
			if refused := refusedBecause(err, "", from.String()); refused != nil {
				l.warnRefused(refused)
			} else {
				l.log.Debug("incoming connection failed", "addr", from.String(), "err", err)
			}
		}
	})
	if !ok {
		<-l.greeting
	}
	return ok
}

func (l *Link) received(ctx context.Context, secure func(context.Context) (session, tls.ConnectionState, error), kind Transport) error {
	sess, state, err := secure(ctx)
	if err != nil {
		return err
	}
	id, err := l.cfg.Identity.PeerID(state)
	if err != nil {
		sess.close(&frame{Code: CodeIdentity, Text: err.Error()}, nil)
		return &identityError{err}
	}
	c, err := l.greetAccepted(ctx, sess, kind, id)
	if err != nil {
		sess.close(nil, nil)
		return err
	}
	return l.adopt(c)
}

// watchHandshake sees QUIC handshakes fail, which no Accept returns.
func (l *Link) watchHandshake(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	context.AfterFunc(ctx, func() {
		var transport *quic.TransportError
		err := context.Cause(ctx)
		if errors.As(err, &transport) && transport.ErrorCode.IsCryptoError() {
			l.warnRefused(refusedBecause(err, "", info.RemoteAddr.String()))
		}
	})
	return ctx, nil
}

// warnRefused says why somebody was refused, once a minute for each cause and host.
func (l *Link) warnRefused(err *RefusedError) {
	const kept = 256
	host, _, _ := net.SplitHostPort(err.Addr)
	key := fmt.Sprint(host, err.Code, err.Remote)
	now := time.Now()
	l.mu.Lock()
	last, known := l.warned[key]
	quiet := known && now.Sub(last) < time.Minute
	if !quiet {
		if len(l.warned) >= kept {
			clear(l.warned)
		}
		l.warned[key] = now
	}
	l.mu.Unlock()
	if !quiet {
		l.log.Warn("connection refused: "+err.Error(), "peer", err.Peer)
	}
}
