package models

import (
	"path/filepath"
	"strings"
)

// scanHub adds the GGUF files of a Hugging Face hub cache, read in place. Its
// layout is models--ORG--REPO/snapshots/REVISION/FILE, a link to blobs/HEX.
func (s *Store) scanHub(dir string, add func(*entry)) {
	for _, folder := range dirNames(dir, maxManifests) {
		rest, ok := strings.CutPrefix(folder, "models--")
		org, repo, ok2 := strings.Cut(rest, "--")
		if !ok || !ok2 {
			continue
		}
		n, err := ParseName(hubHost + "/" + org + "/" + repo)
		if err != nil {
			continue
		}
		root := filepath.Join(dir, folder)
		for _, revision := range revisions(root) {
			s.scanSnapshot(root, filepath.Join(root, "snapshots", revision), n, add)
		}
	}
}

// revisions are the snapshots of a repository, that of "main" first.
func revisions(root string) []string {
	all := dirNames(filepath.Join(root, "snapshots"), 100)
	text, err := readLimited(filepath.Join(root, "refs", "main"), 256)
	if err != nil {
		return all
	}
	main := strings.TrimSpace(string(text))
	ordered := make([]string, 0, len(all))
	for _, r := range all {
		if r == main {
			ordered = append([]string{r}, ordered...)
		} else {
			ordered = append(ordered, r)
		}
	}
	return ordered
}

// scanSnapshot adds the model files of one snapshot and of folders in it.
func (s *Store) scanSnapshot(root, snapshot string, n Name, add func(*entry)) {
	var files []hubFile
	visit := func(parts []string) {
		file := filepath.Join(parts...)
		if isModelFile(file) && !isSplit(file) {
			files = append(files, hubFile{path: file, quant: quantOf(file)})
		}
	}
	walkNames(snapshot, 1, visit)
	walkNames(snapshot, 2, visit)
	for {
		f, ok := choose(files, defaultTag)
		if !ok {
			return
		}
		kept := files[:0]
		for _, other := range files {
			if other.quant != f.quant {
				kept = append(kept, other)
			}
		}
		files = kept
		if e := hubEntry(root, filepath.Join(snapshot, f.path), n, f.quant); e != nil {
			add(e)
		}
	}
}

// hubEntry follows a snapshot's link, which must stay inside of its repository.
func hubEntry(root, path string, n Name, quant string) *entry {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	realRoot, err := filepath.EvalSymlinks(root)
	if err != nil || !strings.HasPrefix(real, realRoot+string(filepath.Separator)) {
		return nil
	}
	if _, ok := isFile(real); !ok {
		return nil
	}
	if quant != "" {
		n.tag = quant
	}
	e := &entry{name: n, shown: n.String(), path: real, source: HuggingFace, fixed: "it belongs to the Hugging Face cache; use hf cache delete"}
	if base := filepath.Base(real); hexPattern.MatchString(base) {
		e.digest = base
	}
	return e
}
