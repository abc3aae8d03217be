package xfer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"tandem/cluster/member"
)

// ErrClosed is returned by a link that was closed here.
var ErrClosed = errors.New("the peer link is closed")

// ErrPeerDone is returned by Write after the other side has ended the stream
// without an error: what it sent can still be read.
var ErrPeerDone = errors.New("the other side has ended the stream")

// Code is why a stream or a connection ended, for programs. Codes from CodeService
// on belong to the services.
type Code uint16

// The codes that every service shares.
const (
	CodeOK        Code = 0
	CodeCancelled Code = 1 // Cancel was called
	CodeFailed    Code = 2 // a handler returned an error
	CodeNoService Code = 3 // nobody there handles the service
	CodeBusy      Code = 4 // a limit on streams or connections was reached
	CodeProtocol  Code = 5 // the other side broke the rules of docs/wire.md
	CodeDeadline  Code = 6 // the time given to the stream is over
	CodeClosing   Code = 7 // the node shuts down, or has no use for the connection
	CodeVersion   Code = 8 // no common version
	CodeCluster   Code = 9 // another cluster
	CodeIdentity  Code = 10
	CodeSameID    Code = 11 // two nodes with one id
	CodeService   Code = 64
)

// RemoteError is the end that the other side gave to a stream: by Cancel, by the
// error of its handler, or because the link there refused it.
type RemoteError struct {
	Peer    member.ID
	Service string
	Code    Code
	Text    string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("%s of node %s: %s", e.Service, e.Peer.Short(), e.Text)
}

// CancelledError is what this side's own Cancel leaves behind.
type CancelledError struct{ Reason string }

func (e *CancelledError) Error() string { return "cancelled: " + e.Reason }

// PeerLostError ends all streams of a connection that is gone.
type PeerLostError struct {
	Peer      member.ID
	Addr      string
	Transport Transport
	Why       string
	Err       error // the cause, if there is one
}

func (e *PeerLostError) Error() string {
	return fmt.Sprintf("node %s at %s (%s) is gone: %s", e.Peer.Short(), e.Addr, e.Transport, e.Why)
}

func (e *PeerLostError) Unwrap() error { return e.Err }

// RefusedError is a connection that one side does not want; trying again helps only
// after somebody has changed something.
type RefusedError struct {
	Peer   member.ID // who was wanted; "" if an unknown node came
	Addr   string
	Code   Code
	Text   string // one sentence with both sides' values and the remedy
	Remote bool   // the other side refused
}

func (e *RefusedError) Error() string {
	who := "here"
	if e.Remote {
		who = "there"
	}
	name := "a node"
	if e.Peer != "" {
		name = "node " + e.Peer.Short()
	}
	return fmt.Sprintf("%s at %s: refused %s: %s", name, e.Addr, who, e.Text)
}

// UnreachableError says that no address of a peer answered.
type UnreachableError struct {
	Peer member.ID
	Errs []error // one for each address and transport
}

func (e *UnreachableError) Error() string {
	if len(e.Errs) == 0 {
		return fmt.Sprintf("node %s cannot be reached: no address of it is known", e.Peer.Short())
	}
	var texts []string
	for _, err := range e.Errs {
		texts = append(texts, err.Error())
	}
	return fmt.Sprintf("node %s cannot be reached: %s", e.Peer.Short(), strings.Join(texts, "; "))
}

func (e *UnreachableError) Unwrap() []error { return e.Errs }

// MessageTooLongError is a message beyond the limit that its reader or writer gave.
type MessageTooLongError struct{ Bytes, Limit int }

func (e *MessageTooLongError) Error() string {
	return fmt.Sprintf("a message of %d bytes; at most %d are allowed", e.Bytes, e.Limit)
}

// protocolError is what a peer did against docs/wire.md.
type protocolError string

func (e protocolError) Error() string { return string(e) }

func protocolErrorf(format string, args ...any) error {
	return protocolError(fmt.Sprintf(format, args...))
}

// clip cuts a text at a limit of bytes and leaves valid UTF-8.
func clip(s string, bytesMax int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= bytesMax {
		return s
	}
	for bytesMax > 0 && !utf8.RuneStart(s[bytesMax]) {
		bytesMax--
	}
	return s[:bytesMax]
}
