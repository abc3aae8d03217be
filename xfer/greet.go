package xfer

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"tandem/cluster/member"
)

// hello is what this link says of itself.
func (l *Link) hello(stamp uint64, n lane) hello {
	return hello{Versions: l.versions(n), Cluster: l.cfg.Cluster, Node: l.cfg.Self, Program: l.cfg.Program,
		Instance: l.instance, Stamp: stamp, Streams: uint32(n.streamsMax()), Idle: l.cfg.Timings.DeadAfter, Lane: n}
}

// versions are those that this link speaks on a lane. Who knows no lanes finds no
// common version for data: it would take the connection for one of control.
func (l *Link) versions(n lane) Versions {
	v := l.cfg.Versions
	if n != controlLane {
		v.Min = max(v.Min, bulkVersion)
	}
	return v
}

// greetDialled says hello first and reads the answer.
func (l *Link) greetDialled(ctx context.Context, sess session, kind Transport, n lane, peer member.ID) (*conn, error) {
	control, err := sess.open(ctx)
	if err != nil {
		return nil, err
	}
	defer wakeAt(ctx, control)()
	stamp := uint64(time.Now().UnixMilli())
	// Who refuses at once may have closed the connection before the write is known to
	// have succeeded: the answer is there nevertheless.
	_, writeErr := control.Write(appendFrame(nil, frame{Type: frameHello, Hello: l.hello(stamp, n)}))
	f, err := readFrame(control)
	if err != nil {
		return nil, deeper(sess, cmp.Or(writeErr, err))
	}
	if f.Type == frameRefuse {
		return nil, &RefusedError{Peer: peer, Addr: sess.remote().String(), Code: f.Code, Text: f.Text, Remote: true}
	}
	if f.Type != frameHello {
		return nil, protocolErrorf("a control frame of type %d in place of a hello", f.Type)
	}
	version, err := l.judge(f.Hello, n, peer, sess.remote().String())
	if err != nil {
		return nil, refuse(sess, control, err)
	}
	if f.Hello.Lane != n {
		return nil, protocolErrorf("lane %d in answer to a hello of lane %d", f.Hello.Lane, n)
	}
	c := newConn(l, peer, kind, n, sess, control, true, f.Hello)
	c.version, c.stamp = version, stamp
	return c, nil
}

// greetAccepted reads the hello of who dialled and answers it.
func (l *Link) greetAccepted(ctx context.Context, sess session, kind Transport, peer member.ID) (*conn, error) {
	stop := context.AfterFunc(ctx, func() { sess.close(nil, nil) })
	control, err := sess.accept()
	stop()
	if err != nil {
		return nil, err
	}
	defer wakeAt(ctx, control)()
	f, err := readFrame(control)
	if err != nil {
		return nil, deeper(sess, err)
	}
	if f.Type != frameHello {
		return nil, protocolErrorf("a control frame of type %d in place of a hello", f.Type)
	}
	addr := sess.remote().String()
	version, err := l.judge(f.Hello, controlLane, peer, addr)
	if err != nil {
		return nil, refuse(sess, control, err)
	}
	n := f.Hello.Lane
	if version < bulkVersion {
		n = controlLane
	}
	if err := l.roomFor(f.Hello, n, addr); err != nil {
		return nil, refuse(sess, control, err)
	}
	if _, err := control.Write(appendFrame(nil, frame{Type: frameHello, Hello: l.hello(f.Hello.Stamp, n)})); err != nil {
		return nil, deeper(sess, err)
	}
	c := newConn(l, peer, kind, n, sess, control, false, f.Hello)
	c.version, c.stamp = version, f.Hello.Stamp
	return c, nil
}

// wakeAt ends waits on a control stream with ctx; the result undoes it.
func wakeAt(ctx context.Context, control rawStream) func() {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		control.SetReadDeadline(long)
		control.SetWriteDeadline(long)
	})
	return func() {
		if !stop() {
			<-woken
		}
	}
}

// judge compares the hello of a peer with this node, which has said what it speaks on
// lane n. Its sentences are shown on both sides, so they name both nodes.
func (l *Link) judge(h hello, n lane, peer member.ID, addr string) (version uint16, err error) {
	refused := &RefusedError{Peer: peer, Addr: addr}
	ours := l.versions(n)
	version, common := ours.common(h.Versions)
	self := l.cfg.Self.Short()
	switch {
	case h.Node == l.cfg.Self:
		refused.Code = CodeSameID
		refused.Text = fmt.Sprintf("both nodes have the id %s, as a copied data folder has: delete the file node-id in one of them and start that node again", h.Node)
	case h.Node != peer:
		refused.Code = CodeIdentity
		refused.Text = fmt.Sprintf("its hello says node %s, its certificate node %s: start it again", h.Node.Short(), peer.Short())
	case !common:
		refused.Code = CodeVersion
		refused.Text = fmt.Sprintf("node %s (program %s) speaks %v, node %s (program %s) %v: update the older program", self, l.cfg.Program, ours, h.Node.Short(), h.Program, h.Versions)
	case h.Cluster != l.cfg.Cluster:
		refused.Code = CodeCluster
		refused.Text = fmt.Sprintf("node %s belongs to cluster %s, node %s to cluster %s: give both the same --secret", self, l.cfg.Cluster, h.Node.Short(), h.Cluster)
	default:
		return version, nil
	}
	return 0, refused
}

// refuse tells the peer why it is not wanted and returns the reason.
func refuse(sess session, control rawStream, err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		sess.close(&frame{Type: frameRefuse, Code: refused.Code, Text: refused.Text}, control)
	}
	return err
}

// deeper finds the error of a connection behind that of a stream.
func deeper(sess session, err error) error {
	if t, ok := sess.(*tcpSession); ok && !isTimeout(err) {
		return t.explain(err)
	}
	return err
}

// refusedBecause turns an error of a handshake into a refusal if it is one: of the
// other side, or of a certificate. Otherwise it returns nil: the network was at fault.
func refusedBecause(err error, peer member.ID, addr string) *RefusedError {
	var (
		refused     *RefusedError
		application *quic.ApplicationError
		transport   *quic.TransportError
		op          *net.OpError
		alert       tls.AlertError
	)
	out := &RefusedError{Peer: peer, Addr: addr, Code: CodeIdentity}
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &application):
		if !application.Remote || application.ErrorCode == 0 {
			return nil
		}
		out.Code, out.Text, out.Remote = Code(application.ErrorCode), application.ErrorMessage, true
		return out
	case errors.As(err, &transport):
		if !transport.ErrorCode.IsCryptoError() {
			return nil
		}
		out.Remote = transport.Remote
	case errors.As(err, &op):
		if op.Op != "remote error" && !errors.As(err, &alert) {
			return nil
		}
		out.Remote = op.Op == "remote error"
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), isTimeout(err),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case !isTLS(err):
		return nil
	}
	out.Text = certificateText(err)
	return out
}

// isTLS tells whether an error is about a certificate. The checks of an identity
// return errors of their own, wrapped by crypto/tls.
func isTLS(err error) bool {
	var verify *tls.CertificateVerificationError
	var identity *identityError
	return errors.As(err, &verify) || errors.As(err, &identity)
}

// identityError is what ClientTLS, ServerTLS or PeerID found wrong.
type identityError struct{ err error }

func (e *identityError) Error() string { return e.err.Error() }
func (e *identityError) Unwrap() error { return e.err }

// certificateText says what to do about a certificate.
func certificateText(err error) string {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return "its certificate was made with another secret: give both nodes the same --secret"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("its certificate is not valid now (%v): set the clocks of both nodes", err)
	}
	return fmt.Sprintf("the certificates do not fit (%v): give both nodes the same --secret and set their clocks", err)
}
