package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	maxTreeBytes = 4 << 20 // one page of a repository's listing
	maxTreePages = 10
)

// planHub finds the file of a Hugging Face repository that a name means.
func (s *Store) planHub(ctx context.Context, n Name) (*plan, error) {
	files, err := s.hubFiles(ctx, n)
	if err != nil {
		return nil, err
	}
	f, ok := choose(files, n.tag)
	if !ok {
		return nil, fmt.Errorf("%w: %s/%s has %s", ErrNotFound, n.namespace, n.model, quants(files, n.tag))
	}
	if isSplit(f.path) {
		return nil, fmt.Errorf("%s of %s/%s is split over several files, which is not supported; %s", f.quant, n.namespace, n.model, quants(files, ""))
	}
	if f.quant != "" {
		n.tag = f.quant
	}
	u := s.web.hub.JoinPath(n.namespace, n.model, "resolve", "main")
	u = u.JoinPath(strings.Split(f.path, "/")...)
	return &plan{
		file: source{request: request{url: u, token: s.web.hubToken}, size: f.size, digest: f.digest},
		made: &manifest{Name: n.String(), parsed: n, Origin: hubHost + "/" + n.namespace + "/" + n.model + "/" + f.path},
	}, nil
}

// quants says in words which quantisations could be had instead.
func quants(files []hubFile, wanted string) string {
	var names []string
	for _, f := range files {
		if f.quant != "" && !isSplit(f.path) && !slices.Contains(names, f.quant) {
			names = append(names, f.quant)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	switch {
	case len(files) == 0:
		return "no GGUF file"
	case len(names) == 0:
		return "no whole file that can be chosen by quantisation"
	case wanted == "":
		return "whole files are " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("no %s, but %s", quote(wanted), strings.Join(names, ", "))
}

// hubFiles lists the model files of a repository.
func (s *Store) hubFiles(ctx context.Context, n Name) ([]hubFile, error) {
	page := s.web.hub.JoinPath("api", "models", n.namespace, n.model, "tree", "main")
	page.RawQuery = "recursive=true"
	var files []hubFile
	for range maxTreePages {
		text, header, err := s.web.getSmall(ctx, request{url: page, token: s.web.hubToken}, maxTreeBytes)
		if err != nil {
			var status *StatusError
			if errors.As(err, &status) && status.Status == http.StatusUnauthorized && s.web.hubToken == "" {
				status.Hint = "there is no such repository, or it is restricted; then set HF_TOKEN"
			}
			return nil, err
		}
		more, err := parseTree(text)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
		if page = nextPage(page, header.Get("Link")); page == nil {
			break
		}
	}
	return files, nil
}

// parseTree reads one page of a listing and keeps the files that can be models.
// A file without a digest is left out: it could not be verified.
func parseTree(text []byte) ([]hubFile, error) {
	var raw []struct {
		Type string `json:"type"`
		Path string `json:"path"`
		Size int64  `json:"size"`
		LFS  struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		} `json:"lfs"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("repository listing: %w", err)
	}
	var files []hubFile
	for _, r := range raw {
		digest := strings.TrimPrefix(r.LFS.OID, "sha256:")
		size := max(r.LFS.Size, r.Size)
		if r.Type != "file" || !isModelFile(r.Path) || !cleanPath(r.Path) || !hexPattern.MatchString(digest) || size < 1 || size > maxBlob {
			continue
		}
		files = append(files, hubFile{path: r.Path, size: size, digest: digest, quant: quantOf(r.Path)})
	}
	return files, nil
}

// cleanPath says whether a path of a listing stays what it is in an address.
func cleanPath(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\\?#%\x00") {
			return false
		}
	}
	return len(p) <= 1024
}

var nextLink = regexp.MustCompile(`<([^<>]+)>\s*;\s*rel="next"`)

// nextPage is the address of the next page of a listing, nil if there is none or
// if it is on another server.
func nextPage(page *url.URL, link string) *url.URL {
	m := nextLink.FindStringSubmatch(link)
	if m == nil {
		return nil
	}
	next, err := page.Parse(m[1])
	if err != nil || next.Scheme != page.Scheme || next.Host != page.Host {
		return nil
	}
	return next
}
