//go:build !linux

package shm

import (
	"context"
	"errors"
)

// Window is memory that two processes have mapped.
type Window struct{}

// Listener takes windows that other processes offer.
type Listener struct{}

// Machine is empty: processes cannot share memory here.
func Machine() string { return "" }

// Offer returns errors.ErrUnsupported.
func Offer(context.Context, string, Token, int) (*Window, error) { return nil, errors.ErrUnsupported }

// Listen returns errors.ErrUnsupported.
func Listen() (*Listener, error) { return nil, errors.ErrUnsupported }

// Name is empty.
func (l *Listener) Name() string { return "" }

// Expect makes none.
func (l *Listener) Expect(func(*Window)) Token { return Token{} }

// Close does nothing.
func (l *Listener) Close() error { return nil }

// Bytes is 0.
func (w *Window) Bytes() int { return 0 }

// Lost never ends.
func (w *Window) Lost() <-chan struct{} { return nil }

// Alloc gives nothing.
func (w *Window) Alloc(context.Context, int) (int, error) { return 0, ErrClosed }

// Free does nothing.
func (w *Window) Free(int) {}

// Write does nothing.
func (w *Window) Write(int, []byte) error { return ErrClosed }

// Read does nothing.
func (w *Window) Read(uint64, []byte) error { return ErrClosed }

// Close does nothing.
func (w *Window) Close() error { return nil }
