// Package grammar turns JSON Schemas into GBNF grammars, and checks the grammars
// that clients send.
//
// GBNF is the notation of llama.cpp for what a model may write: rules over
// characters, the first of which is "root". FromSchema and JSON make a whole
// grammar; a Builder makes one of several schemas and of the caller's own rules,
// as tool calls need it. Check reads a client's grammar. Sampling with a grammar is
// left to the engine, tool call formats to the chat templates.
//
// A schema is honoured or refused. What a grammar matches satisfies the schema, and
// ends with the value; what the grammar cannot express is an *Error with the place
// and the keyword. Nothing is fetched. Not every instance is generated, though:
//
//	objects    members in the order of the schema; others behind them, and only if
//	           additionalProperties allows them or no properties are declared
//	numbers    up to 16 digits before and after the point; with bounds no exponent
//	strings    at most 48 blanks in a row; control characters as escapes
//	blanks     one, or a line break and up to 20, where pretty printers have them
//
// Keywords:
//
//	type (one or a list), nullable            yes; without type, the other keywords tell it
//	enum, const                               yes, any values, filtered by the other keywords
//	properties, required, propertyNames       yes; propertyNames for objects without properties
//	additionalProperties                      yes
//	minProperties, maxProperties              1 and maps, or where they follow from the rest
//	items, prefixItems, minItems, maxItems    yes, and additionalItems as before 2020
//	minLength, maxLength                      yes, any numbers
//	pattern                                   what is regular in ECMAScript; no \b, \p, lookaround
//	format                                    date time date-time duration uuid ipv4 ipv6 hostname email uri
//	minimum, maximum, exclusive…              yes, exact
//	multipleOf                                1, 0.1, 0.01 and so on
//	anyOf, oneOf                              yes; oneOf like anyOf: one branch at least
//	allOf, $ref                               yes, merged; $ref to # and #/… only, recursion too
//	unevaluatedProperties, unevaluatedItems   true and false
//	uniqueItems, contains, not, if, dependent…, patternProperties, $dynamicRef: refused
//
// Other formats that JSON Schema defines are refused; unknown formats, unknown
// keywords and annotations constrain nothing. A key that is there twice is refused.
// A grammar cannot remember the names of undeclared members, so one may come twice.
//
// Everything from outside meets a limit of limits.go, and so does the grammar: the
// sampler's memory and its work for a token are bounded. The last check is a dry run
// that looks for texts that can be read in very many ways at once. It is a search
// and can miss one that was hidden with care, so a sampler needs a limit, too.
//
// Nothing here blocks, starts a goroutine or keeps state. Errors to match: *Error for
// a schema, *SyntaxError for a grammar. Start reading at schema.go.
package grammar
