// Package webui is the page that the node shows in a browser: chat, models,
// status, and how to connect other programs.
//
// The page is written in TypeScript with Preact (src), built with Vite into
// dist, and embedded from there, so building the node needs neither npm nor a
// network. dist is committed; `make webui` builds it anew after a change in
// src, and a test fails as long as that was forgotten.
//
// Handler serves the built files and nothing else. It knows nothing of the
// node: the page talks to the same API as any other client, with the key that
// the person enters. Pages are hash routes (/#/chat), so the server has one
// document, index.html, and hashed assets under /ui/assets/.
//
// Everything is held in memory, compressed once at the first call of Handler.
// Nothing blocks, no goroutine is started, and a request can name no file that
// was not built.
//
// The security policy of the document forbids inline script and style, any
// other origin, frames, forms and plain strings where the browser would run
// markup (Trusted Types); the sanitiser of the page is the only maker of markup
// that is let through.
package webui
