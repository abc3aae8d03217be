package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Media types of the layers of an Ollama manifest that mean something here.
const (
	mediaModel   = "application/vnd.ollama.image.model"
	mediaAdapter = "application/vnd.ollama.image.adapter"
	mediaLicense = "application/vnd.ollama.image.license"
)

const (
	maxOllamaManifest = 4 << 20
	maxLicense        = 64 << 10
)

// ollamaLayer is a layer whose digest and size have been checked.
type ollamaLayer struct {
	digest string // hex
	size   int64
}

// ollamaManifest is what is used of a manifest, from the registry or from disk.
type ollamaManifest struct {
	model   ollamaLayer
	license *ollamaLayer
}

// parseOllamaManifest checks a manifest: it must name exactly one file of
// weights, by a digest that can be trusted as a file name.
func parseOllamaManifest(text []byte) (*ollamaManifest, error) {
	var raw struct {
		Layers []struct {
			MediaType string `json:"mediaType"`
			Digest    string `json:"digest"`
			Size      int64  `json:"size"`
		} `json:"layers"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m := &ollamaManifest{}
	found := false
	for _, l := range raw.Layers {
		if l.MediaType == mediaAdapter {
			return nil, errors.New("the model has an adapter, which is not supported; use a merged model")
		}
		if l.MediaType != mediaModel && l.MediaType != mediaLicense {
			continue
		}
		hex, err := ParseDigest(l.Digest)
		if err != nil {
			return nil, err
		}
		if l.Size < 1 || l.Size > maxBlob {
			return nil, fmt.Errorf("a layer has the size %d, allowed are 1 to %d", l.Size, int64(maxBlob))
		}
		layer := ollamaLayer{hex, l.Size}
		if l.MediaType == mediaLicense {
			if m.license == nil && l.Size <= maxLicense {
				m.license = &layer
			}
			continue
		}
		if found {
			return nil, errors.New("the model is split over several layers, which is not supported")
		}
		m.model, found = layer, true
	}
	if !found {
		return nil, errors.New("the manifest names no GGUF file; models in other formats are not supported")
	}
	return m, nil
}

// scanOllama adds the models of an Ollama store, read in place. Its layout is
// manifests/HOST/NAMESPACE/MODEL/TAG and blobs/sha256-HEX.
func (s *Store) scanOllama(dir string, add func(*entry)) {
	root := filepath.Join(dir, "manifests")
	walkNames(root, 4, func(parts []string) {
		n, err := ParseName(strings.Join(parts[:3], "/") + ":" + parts[3])
		if err != nil {
			return
		}
		path := filepath.Join(append([]string{root}, parts...)...)
		text, err := readLimited(path, maxOllamaManifest)
		if err != nil {
			return
		}
		m, err := parseOllamaManifest(text)
		if err != nil {
			s.reportManifest(path, fmt.Errorf("model %s of Ollama: %w", n, err))
			return
		}
		e := &entry{name: n, shown: n.String(), path: filepath.Join(dir, "blobs", "sha256-"+m.model.digest), digest: m.model.digest, source: Ollama,
			fixed: "it belongs to Ollama; use ollama rm"}
		if m.license != nil {
			e.license = licenseOf(filepath.Join(dir, "blobs", "sha256-"+m.license.digest))
		}
		add(e)
	})
}

// walkNames calls visit with the names of every path that is depth names deep.
func walkNames(root string, depth int, visit func(parts []string)) {
	var walk func(dir string, parts []string)
	walk = func(dir string, parts []string) {
		for _, name := range dirNames(dir, maxManifests) {
			if strings.HasPrefix(name, ".") {
				continue
			}
			next := append(parts[:len(parts):len(parts)], name)
			if len(next) == depth {
				visit(next)
			} else {
				walk(filepath.Join(dir, name), next)
			}
		}
	}
	walk(root, nil)
}

// licenseOf is the first line of a license text.
func licenseOf(path string) string {
	text, err := readLimited(path, maxLicense)
	if err != nil {
		return ""
	}
	return licenseLine(text)
}

func licenseLine(text []byte) string {
	const most = 120
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(strings.ToValidUTF8(line, "")); line != "" {
			return line[:min(len(line), most)]
		}
	}
	return ""
}
