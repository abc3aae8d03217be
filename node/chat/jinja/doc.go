// Package jinja renders the chat templates that models carry in their files.
//
// A template is a program from a stranger, run once for every request, on text
// from another stranger. So the package differs from a general Jinja engine in
// three ways.
//
// Everything is metered. A render has a budget of steps, of bytes made, of
// output and of depth, and a deadline; whatever a template does is charged
// before it happens, so loops without output, huge strings, endless recursion
// and self-referring values all end with an [Error] of kind [Exhausted]. There
// is no goroutine: a render returns within its budget, on the caller's stack.
//
// Nothing is reachable but values. A [Value] is one of a closed set of types;
// there is no reflection, no file, no clock (the time is an option) and no other
// template: include, import and extends are refused by [Parse].
//
// Text remembers where it came from. A [Text] knows which of its bytes are
// foreign, that is, came from outside the template, and keeps that through
// concatenation, slicing, replacing, case changes and JSON encoding. The caller
// can therefore tell a role border that the template wrote from the same
// letters typed by a user, even if a border came together from both.
//
// The language is Jinja2 as transformers runs it: trim_blocks and lstrip_blocks
// on, break and continue, generation blocks, tojson without HTML escapes,
// raise_exception and strftime_now. Sequences that Jinja2 evaluates lazily are
// lists here, and lists and dicts can be appended to. Left out: includes and
// inheritance, autoescaping, async, and the filters that only web pages use.
//
// A Template is immutable and safe for concurrent use; a render never blocks.
// Errors are *[Error]; when the caller's context ends first, its cause.
package jinja
