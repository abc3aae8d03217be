// Package modeltest has tests only: the engine on llama.cpp with a trained model,
// to show that what holds on the fake of enginetest holds on the real thing. It is
// a package of its own so that the engine's tests need no cgo.
//
// The model is the one built into the program; TANDEM_TEST_MODEL names another.
package modeltest
