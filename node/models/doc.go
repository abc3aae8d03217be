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
//	chunks/HEX         chunk lists of model files, for other nodes
//	heads/HEX.gguf     headers of models that other nodes have; never listed
//	*.gguf             files that somebody put there; listed, never changed
//
// Of an Ollama model the layers with the weights and the license are used. Its
// template is for another template language: the chat template in the GGUF is used
// instead. Its parameters and system prompt are not applied. A model with an
// adapter layer is skipped, for without the adapter it would be another model.
//
// Nodes give each other models by the SHA-256 of the file, which is all that
// comes from outside: Offers, Manifest, OpenRange and Head serve what the store
// lists and nothing else, CopyFromPeers and CopyHead get it. How bytes travel is
// the business of a PeerSource.
//
// A Store may be used by any number of goroutines. Resolve touches no network and
// in the common case costs one stat. Pull runs each ref once, in a goroutine of
// its own, for all callers that wait for it, and so does CopyFromPeers, which has
// one more for each chunk on its way; Close ends those goroutines. PrepareSharing
// runs on its caller's. Two processes may share a folder: files appear by rename,
// and a download or copy in progress is locked.
//
// Callers match ErrNotFound, ErrBadName, ErrBusy, ErrWrongBytes and ErrSlow with
// errors.Is, and with errors.As *RefError, *BrokenError, *ReadOnlyError,
// *DigestError, *SpaceError, *UnreachableError, *StatusError, *PeersError,
// *RangeError and *ManifestError. No message holds an absolute path.
//
// Start reading at store.go; pull.go is the story of a download,
// peer_copy.go that of a copy from other nodes.
package models
