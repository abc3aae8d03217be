// Package gbnf decides which tokens may follow when a text must match a grammar
// in GBNF, the notation of llama.cpp.
//
// Compile turns the source into a program over bytes. A State is where a text
// can be in that program: a set of threads, each a program counter with a stack
// of rules to return to. States are found by need and kept, with their
// transitions and with the set of tokens that may follow, so that a grammar that
// is used again costs a table look-up per byte.
//
// Grammars come from clients. Everything that they can make large has a limit:
// the source, its nesting, the program, the threads of a state, the depth of a
// stack, the states that are kept. A text that would need more than that is
// refused like one that does not match: the limits can make a grammar unusable,
// but never let a wrong text pass.
//
// The dialect is llama.cpp's with these differences: rule names may have an
// underscore; a rule may go on in the next line if that begins with "|"; tokens
// by name or number (<think>, <[42]>) are refused; NUL is matched by neither "."
// nor an inverted class. Text is UTF-8; a token may end inside a character.
//
// A Grammar is safe for concurrent use. Nothing here blocks except on its lock,
// and there are no goroutines. Compile returns a *Error with line and column.
package gbnf
