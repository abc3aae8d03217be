package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"

	"tandem/cluster/member"
	"tandem/node/api"
	"tandem/node/models"
	"tandem/xfer"
)

// serviceModel gives pieces of model files to other nodes; serviceFetch lets a node
// get a whole one.
const (
	serviceModel = "model"
	serviceFetch = "fetch"
)

// piece asks for a part of a model file, or with N = 0 for its chunk list.
type piece struct {
	Digest string `json:"digest"`
	From   int64  `json:"from,omitempty"`
	N      int64  `json:"n,omitempty"`
}

// pieceHead comes before what was asked for.
type pieceHead struct {
	Refused *api.Error `json:"refused,omitempty"`
	Size    int64      `json:"size,omitempty"` // bytes that follow
}

// serveModel gives one piece.
func (n *Node) serveModel(ctx context.Context, s *xfer.Stream) error {
	var p piece
	if err := readJSON(s, answerMax, &p); err != nil {
		return err
	}
	if p.N == 0 {
		m, err := n.store.Manifest(ctx, p.Digest)
		if err != nil {
			return writeJSON(s, pieceHead{Refused: asAPIError(p.Digest, err)})
		}
		data := m.Encode()
		if err := writeJSON(s, pieceHead{Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = s.Write(data)
		return err
	}
	r, _, err := n.store.OpenRange(p.Digest, p.From, p.N)
	if err != nil {
		return writeJSON(s, pieceHead{Refused: asAPIError(p.Digest, err)})
	}
	defer r.Close()
	if err := writeJSON(s, pieceHead{Size: p.N}); err != nil {
		return err
	}
	_, err = io.Copy(s, r)
	return err
}

// peerSource is another node as a place to copy models from: models.PeerSource.
type peerSource struct {
	peers *peers
	id    member.ID
}

func (p peerSource) Name() string { return p.peers.name(p.id) }

func (p peerSource) open(ctx context.Context, what piece) (io.ReadCloser, int64, error) {
	s, err := p.peers.link.OpenBound(ctx, p.id, serviceModel)
	if err != nil {
		return nil, 0, err
	}
	r := &pieceReader{Reader: s, stream: s}
	var head pieceHead
	if err = writeJSON(s, what); err == nil {
		err = readJSON(s, answerMax, &head)
	}
	if err == nil && head.Refused != nil {
		err = head.Refused
	}
	if err != nil {
		r.Close()
		return nil, 0, err
	}
	r.Reader = io.LimitReader(s, head.Size)
	return r, head.Size, nil
}

// Manifest implements models.PeerSource.
func (p peerSource) Manifest(ctx context.Context, digest string) (models.Manifest, error) {
	r, size, err := p.open(ctx, piece{Digest: digest})
	if err != nil {
		return models.Manifest{}, err
	}
	defer r.Close()
	if size < 0 || size > int64(models.MaxManifestBytes) {
		return models.Manifest{}, fmt.Errorf("a chunk list of %d bytes; at most %d are allowed", size, models.MaxManifestBytes)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return models.Manifest{}, err
	}
	return models.ParseManifest(data)
}

// Range implements models.PeerSource.
func (p peerSource) Range(ctx context.Context, digest string, from, n int64) (io.ReadCloser, error) {
	r, size, err := p.open(ctx, piece{Digest: digest, From: from, N: n})
	if err == nil && size != n {
		r.Close()
		err = fmt.Errorf("%d bytes were sent where %d were asked for", size, n)
	}
	return r, err
}

// pieceReader reads what follows the head, and ends the stream when it is closed.
type pieceReader struct {
	io.Reader
	stream *xfer.Stream
}

func (r *pieceReader) Close() error {
	r.stream.Cancel("nothing more is wanted")
	return nil
}

// sources are the nodes from which a model can be copied.
func (p *peers) sources(m target) []models.PeerSource {
	var out []models.PeerSource
	for _, id := range p.holders(m) {
		out = append(out, peerSource{p, id})
	}
	return out
}

// fetchCall asks another node to get a model, which the caller has.
type fetchCall struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// serveFetch gets a model for the operator of another node. What of it is here
// already is not copied.
func (p *peers) serveFetch(ctx context.Context, s *xfer.Stream) error {
	var c fetchCall
	if err := readJSON(s, answerMax, &c); err != nil {
		return err
	}
	n := p.node
	m := target{Model: models.Model{Name: c.Name, Digest: c.Digest, Size: c.Size}}
	sources := p.sources(m)
	if !slices.ContainsFunc(sources, func(source models.PeerSource) bool { return source.(peerSource).id == s.Peer() }) {
		sources = append(sources, peerSource{p, s.Peer()}) // it may not have told yet
	}
	_, err := n.store.CopyFromPeers(ctx, peerModel(m), sources, nil)
	n.told.changed()
	return writeJSON(s, answerPart{Accepted: err == nil, Refused: asAPIError(c.Name, err)})
}

// headOf gets the vocabulary of a model that only other nodes have.
func (n *Node) headOf(ctx context.Context, m target) (string, error) {
	if m.Digest == "" {
		return "", api.Busy(http.StatusServiceUnavailable, digestTime, "model %s is on another node, which still reads its file to know its digest; try again later", m.Name)
	}
	return n.store.CopyHead(ctx, peerModel(m), n.peers.sources(m))
}

// pull gets a model: from the nodes that have it, else from where its name points to.
func (n *Node) pull(ctx context.Context, ref string, progress func(models.Progress)) (models.Model, error) {
	if m, ok := n.peers.find(ref); ok && m.Digest != "" {
		got, err := n.store.CopyFromPeers(ctx, peerModel(m), n.peers.sources(m), progress)
		if err == nil || ctx.Err() != nil {
			return got, err
		}
		n.log.Warn("a model could not be copied from other nodes; it is pulled instead", "model", ref, "error", err)
	}
	return n.store.Pull(ctx, ref, progress)
}

func peerModel(m target) models.PeerModel {
	return models.PeerModel{Name: m.Name, Digest: m.Digest, Size: m.Size, Kind: models.KindChat}
}
