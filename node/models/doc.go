// Package models is the node's model store: it finds the model files that are on
// this machine, gets new ones from the network, and hands out only those whose
// GGUF header has passed package gguf.
//
// Nouns: a Name is what clients call a model ("smollm2:135m",
// "hf.co/org/repo:Q4_K_M", "my-file"); it is checked before anything else is done
// with it and never becomes a path. A Model is a checked file with its name. A ref
// is what can be pulled: a name of the Ollama registry or of Hugging Face, or an
// https URL. A path is not a ref: clients of the API must not make the node read
// files, so Import and AddPath are for the command line.
//
// Models come, in this order of precedence, from paths given at the start
// (AddPath), from the store's own manifests, from *.gguf files in its folder, from
// the built-in model, from Ollama's stores and from caches of Hugging Face and
// llama.cpp. The store writes into its own folder only. In it are
//
//	blobs/sha256-HEX   complete files, verified against their digest
//	manifests/*.json   one per name: which blob, or which file elsewhere
//	partial/           downloads that can be resumed, and uploads in progress
//	*.gguf             files that somebody put there; listed, never changed
//
// Of an Ollama model the layers with the weights and the license are used. Its
// template is for another template language: the chat template in the GGUF is used
// instead. Its parameters and system prompt are not applied. A model with an
// adapter layer is skipped, for without the adapter it would be another model.
//
// A Store may be used by any number of goroutines. Resolve touches no network and
// in the common case costs one stat. Pull runs each ref once, in a goroutine of
// its own, for all callers that wait for it; Close ends those goroutines. Two
// processes may share a folder: files appear by rename, and a download in progress
// is locked.
//
// Callers match ErrNotFound and ErrBadName with errors.Is, and with errors.As
// *RefError, *BrokenError, *ReadOnlyError, *DigestError, *SpaceError,
// *UnreachableError and *StatusError. No message holds an absolute path.
//
// Start reading at store.go; pull.go is the story of a download.
package models
