package models

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tandem/node/models/gguf"
)

// TestPullHostile asks registries that lie. Nothing of what they send may stay.
func TestPullHostile(t *testing.T) {
	digest, size := sum(tiny()), len(tiny())
	manifest := func(layers ...rawLayer) func(*server) {
		return func(s *server) { s.text("/v2/library/m/manifests/latest", ollamaJSON(layers...)) }
	}
	weights := func(h http.HandlerFunc) func(*server) {
		return func(s *server) {
			manifest(layer(mediaModel, digest, size))(s)
			s.mux.HandleFunc("/v2/library/m/blobs/sha256:"+digest, h)
		}
	}
	var wrong *DigestError
	var refused *gguf.FormatError
	isDigest := func(err error) bool { return errors.As(err, &wrong) }
	isFormat := func(err error) bool { return errors.As(err, &refused) }
	says := func(s string) func(error) bool {
		return func(err error) bool { return err != nil && strings.Contains(err.Error(), s) }
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	flipped := bytes.Clone(tiny())
	flipped[len(flipped)-1] ^= 1

	for _, tc := range []struct {
		name  string
		setup func(*server)
		want  func(error) bool
	}{
		{"no such model", func(*server) {}, is(ErrNotFound)},
		{"a manifest that is a page", func(s *server) { s.text("/v2/library/m/manifests/latest", []byte("<html>")) }, says("manifest")},
		{"an endless manifest", func(s *server) {
			s.mux.HandleFunc("/v2/library/m/manifests/latest", func(w http.ResponseWriter, r *http.Request) { endless(w) })
		}, says("more than 4.2 MB")},
		{"a digest that is a path", manifest(rawLayer{"mediaType": mediaModel, "digest": "sha256:../../../../x", "size": 5}), is(ErrBadName)},
		{"a digest with a dash", manifest(rawLayer{"mediaType": mediaModel, "digest": "sha256-../../x", "size": 5}), is(ErrBadName)},
		{"a negative size", manifest(rawLayer{"mediaType": mediaModel, "digest": "sha256:" + digest, "size": -1}), says("size")},
		{"an absurd size", manifest(rawLayer{"mediaType": mediaModel, "digest": "sha256:" + digest, "size": int64(1) << 62}), says("size")},
		{"a size that is text", manifest(rawLayer{"mediaType": mediaModel, "digest": "sha256:" + digest, "size": "5"}), says("manifest")},
		{"no weights", manifest(layer(mediaLicense, digest, 5)), says("no GGUF")},
		{"other bytes", weights(func(w http.ResponseWriter, r *http.Request) { w.Write(flipped) }), isDigest},
		{"a page instead of weights", weights(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "<!DOCTYPE html>%*s", size-15, "") }), isFormat},
		{"a longer file", weights(func(w http.ResponseWriter, r *http.Request) { w.Write(append(bytes.Clone(tiny()), 0)) }), says("announced")},
		{"a shorter file", weights(func(w http.ResponseWriter, r *http.Request) { w.Write(tiny()[:size-1]) }), says("ended early")},
		{"a shorter file that says so", weights(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size-1))
			w.Write(tiny()[:size-1])
		}), says("announced were")},
		{"an endless body", weights(func(w http.ResponseWriter, r *http.Request) {
			w.Write(tiny()[:1000])
			endless(w)
		}), func(err error) bool { return isDigest(err) || says("sends more")(err) }},
		{"a body that always ends early", weights(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			w.Write(tiny()[:5000])
			panic(http.ErrAbortHandler)
		}), says("ended early")},
		{"compressed", weights(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(tiny())
		}), says("encoded")},
		{"a redirect to a file", weights(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}), says(`"file"`)},
		{"a server error", weights(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusInternalServerError) }), says("status 500")},
		{"refused", weights(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) }), says("HF_TOKEN")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := newServer(t)
			tc.setup(srv)
			s := srv.store(t)
			_, err := s.Pull(context.Background(), "m", nil)
			if !tc.want(err) {
				t.Errorf("got %v", err)
			}
			noPath(t, err)
			if got := names(t, s); got != "" {
				t.Errorf("offered %s", got)
			}
			if blobs := dirNames(filepath.Join(s.cfg.Dir, "blobs"), 10); len(blobs) != 0 {
				t.Errorf("blobs %v", blobs)
			}
		})
	}
}

// endless writes until the client has enough.
func endless(w io.Writer) {
	junk := make([]byte, 64<<10)
	for {
		if _, err := w.Write(junk); err != nil {
			return
		}
	}
}

// TestPullRefusedFile pulls files whose digest is right and whose header is not.
func TestPullRefusedFile(t *testing.T) {
	bad := bytes.Clone(tiny())
	copy(bad[bytes.Index(bad, []byte("llama.block_count"))+len("llama.block_count")+4:], []byte{0xff, 0xff, 0xff, 0xff})
	srv := newServer(t)
	srv.model("m", bad)
	s := srv.store(t)
	_, err := s.Pull(context.Background(), "m", nil)
	var refused *gguf.FormatError
	if !errors.As(err, &refused) || refused.Field != "llama.block_count" {
		t.Errorf("got %v, want a FormatError of llama.block_count", err)
	}
	if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
