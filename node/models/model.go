package models

import (
	"time"

	"tandem/node/models/gguf"
)

// Source says where a model's file is.
type Source string

// The sources. Models of all but Own are read in place and never changed.
const (
	Own         Source = "tandem"
	Ollama      Source = "ollama"
	HuggingFace Source = "huggingface"
	File        Source = "file"
	BuiltIn     Source = "built-in"
)

// Model is a model file on this machine whose header has been checked.
type Model struct {
	Name     string // as it is shown; Resolve takes it
	Path     string
	Digest   string // hex SHA-256 of the file; "" if it is not known yet, see Store.Digest
	Size     int64  // bytes
	Modified time.Time
	Source   Source
	License  string
	Info     gguf.Summary
}

// Progress is one step of a download or import.
type Progress struct {
	Status    string // "pulling manifest", "pulling 1a2b3c4d5e6f", "verifying", ..., "success"
	Digest    string // "sha256:..." of what is pulled; "" if it is not known
	Total     int64  // bytes; 0 if not known
	Completed int64
}
