package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"tandem/cluster"
	"tandem/cluster/member"
	"tandem/xfer"
)

// serviceDoctor answers those who examine the way to this node. A stream begins with
// one message that says what is wanted.
const serviceDoctor = "doctor"

// What is wanted.
const (
	doctorTell    = "tell"    // a tell; the stream stays open until the asker closes it
	doctorSend    = "send"    // bytes, as fast as they go
	doctorSwallow = "swallow" // the number of bytes that came, once they have ended
)

// Limits of the service.
const (
	doctorAskMax   = 32               // bytes of what is wanted
	doctorTellMax  = 4096             // bytes of a tell
	doctorBytesMax = 256 << 20        // sent or swallowed on one stream
	doctorTime     = 2 * time.Second  // for that
	doctorStay     = 30 * time.Second // that an asker may be there
	doctorChunk    = 64 << 10
)

// tell is what a node says of itself to a doctor.
type tell struct {
	Time      time.Time `json:"time"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Key       string    `json:"key"`     // fingerprint of the cluster's secret
	Cluster   string    `json:"cluster"` // id of what the nodes have agreed on, "" if nothing yet
	Gossip    int       `json:"gossip"`  // version of its protocol
	WireMin   int       `json:"wire_min"`
	WireMax   int       `json:"wire_max"`
	Members   []string  `json:"members"` // names of the nodes that it sees alive
	HasQuorum bool      `json:"has_quorum"`
}

// serveDoctor answers one stream of a doctor, which is a member only by its secret:
// once it is gone, nothing of it is remembered.
func (p *peers) serveDoctor(ctx context.Context, s *xfer.Stream) error {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.cluster == nil || p.quorum == nil {
		return errStopping
	}
	if err := s.SetDeadline(time.Now().Add(doctorTime)); err != nil {
		return err
	}
	what, err := xfer.ReadMessage(s, doctorAskMax)
	if err != nil {
		return err
	}
	switch string(what) {
	case doctorTell:
		return p.tellDoctor(s)
	case doctorSend:
		return pour(s)
	case doctorSwallow:
		return swallow(s)
	}
	return fmt.Errorf("%q is not known; allowed: %s", what, strings.Join([]string{doctorTell, doctorSend, doctorSwallow}, ", "))
}

func (p *peers) tellDoctor(s *xfer.Stream) error {
	q := p.quorum.Status()
	t := tell{Time: time.Now(), Name: p.node.cfg.Name, Version: Version, Key: p.node.identity.ClusterKeyID(), Cluster: q.ClusterID, HasQuorum: q.HasQuorum,
		Gossip: cluster.WireVersion, WireMin: xfer.VersionMin, WireMax: xfer.VersionMax}
	const namesMax = 32 // of 63 bytes each: they fit
	for _, m := range p.cluster.Members() {
		if m.State == member.Alive && len(t.Members) < namesMax {
			t.Members = append(t.Members, m.Name)
		}
	}
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := xfer.WriteMessage(s, data); err != nil {
		return err
	}
	if err := s.SetDeadline(time.Now().Add(doctorStay)); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(s, doctorAskMax)) // its end is what is waited for
	if _, known := p.cluster.Member(s.Peer()); !known {
		p.link.Drop(s.Peer())
	}
	return nil
}

// pour sends bytes until the reader has enough.
func pour(s *xfer.Stream) error {
	chunk := make([]byte, doctorChunk)
	for sent := 0; sent < doctorBytesMax; {
		n, err := s.Write(chunk)
		sent += n
		if err != nil {
			return doctorEnd(err)
		}
	}
	return nil
}

// swallow reads until the writer has had enough, and says how much it was.
func swallow(s *xfer.Stream) error {
	n, err := io.CopyBuffer(io.Discard, plainReader{io.LimitReader(s, doctorBytesMax)}, make([]byte, doctorChunk))
	if err = doctorEnd(err); err != nil {
		return err
	}
	if err := s.SetWriteDeadline(time.Now().Add(doctorTime)); err != nil {
		return err
	}
	return xfer.WriteMessage(s, fmt.Append(nil, n))
}

// plainReader hides what could make a copy take another way than its buffer.
type plainReader struct{ io.Reader }

// doctorEnd takes the ends that are meant out of the errors: time is up, or the other
// side has enough.
func doctorEnd(err error) error {
	var remote *xfer.RemoteError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, xfer.ErrPeerDone), errors.As(err, &remote) && remote.Code == xfer.CodeCancelled:
		return nil
	}
	return err
}
