package models

import (
	"context"
	"net/http"
	"net/url"
)

// planRegistry asks an Ollama registry what a name means.
func (s *Store) planRegistry(ctx context.Context, n Name) (*plan, error) {
	base := *s.web.registry
	namespace := n.namespace
	if n.host != "" {
		base = url.URL{Scheme: "https", Host: n.host}
		if isLoopback(base.Hostname()) {
			base.Scheme = "http"
		}
	} else if namespace == "" {
		namespace = defaultNamespace
	}
	repo := base.JoinPath("v2", namespace, n.model)
	accept := http.Header{"Accept": {"application/vnd.docker.distribution.manifest.v2+json"}}
	text, _, err := s.web.getSmall(ctx, request{url: repo.JoinPath("manifests", n.tag), header: accept}, maxOllamaManifest)
	if err != nil {
		return nil, err
	}
	m, err := parseOllamaManifest(text)
	if err != nil {
		return nil, err
	}
	blob := func(l ollamaLayer) request { return request{url: repo.JoinPath("blobs", "sha256:"+l.digest)} }
	p := &plan{
		file: source{request: blob(m.model), size: m.model.size, digest: m.model.digest},
		made: &manifest{Name: n.String(), parsed: n, Origin: base.Host + "/" + namespace + "/" + n.model + ":" + n.tag},
	}
	if m.license != nil {
		license := blob(*m.license)
		p.license = &license
	}
	return p, nil
}
