package grammar

// Limits on what comes from outside. A schema or grammar that passes them is
// compiled in well under a second and costs the sampler a bounded amount of
// memory and of work per token.
const (
	// MaxSchemaBytes bounds the text of one schema. Real ones have a few KB; an
	// enum of 20,000 values has about 300 KB.
	MaxSchemaBytes = 1 << 20
	// MaxSchemaDepth bounds nested brackets in a schema. One level of nested
	// objects takes two (properties, then the property). It keeps every recursion
	// over the schema shallow.
	MaxSchemaDepth = 512
	// MaxSchemaValues bounds the JSON values in a schema; each takes some 150
	// bytes while it is compiled.
	MaxSchemaValues = 1 << 17
	// MaxEnumValues bounds the values of one enum.
	MaxEnumValues = 1 << 15
	// MaxNumberDigits bounds the digits of a bound such as minimum, written out
	// without exponent. A double has at most 309 before the point.
	MaxNumberDigits = 400
	// MaxPatternBytes and MaxPatternDepth bound a regular expression and its
	// nested groups.
	MaxPatternBytes = 64 << 10
	MaxPatternDepth = 200
	// MaxPatternStates bounds the automaton of one string schema: one grammar rule
	// per state.
	MaxPatternStates = 4096

	// MaxGrammarBytes bounds the text of a grammar. Samplers keep a copy of it for
	// every sequence.
	MaxGrammarBytes = 1 << 20
	// MaxGrammarDepth bounds nested groups, for which llama.cpp's parser recurses.
	MaxGrammarDepth = 100
	// MaxGrammarRules bounds the rules after groups and repetitions became rules
	// of their own, as llama.cpp does it: about 300 bytes each there.
	MaxGrammarRules = 1 << 16
	// MaxGrammarElements bounds the symbols of all rules after that expansion: a
	// byte of a literal, a class, a name, a bar or the end of a rule. Samplers
	// need 16 bytes or more for each.
	MaxGrammarElements = 1 << 18
	// MaxGrammarClasses bounds the different character classes; a sampler may make
	// an automaton of some KB for each.
	MaxGrammarClasses = 1 << 10
	// MaxRepetition is the largest number in {m,n} that llama.cpp accepts.
	MaxRepetition = 2000
	// MaxLeftDepth bounds how many rules may be entered before the first
	// character, because llama.cpp recurses once for each.
	MaxLeftDepth = 2000
	// MaxBranches bounds the ways in which a rule can begin. llama.cpp walks all of
	// them whenever the rule is entered, without remembering which it has seen.
	MaxBranches = 1 << 14
	// MaxStacks bounds the parse states that may be alive at once. Each is tried
	// against the vocabulary for every token.
	MaxStacks = 1024
)

const (
	// blankRunMax bounds the blanks in a row that a free string may hold: models
	// that have lost the thread emit blanks for ever. Together with a counted
	// prefix (see countedBlock) a run stays under 64.
	blankRunMax = 48
	// indentMax bounds the indentation after a line break between JSON tokens.
	indentMax = 20
	// countedBlock is the number of characters in the smallest block of a counted
	// string. Every full block holds a character that is not blank, so that counted
	// strings have no run of more than three blocks less one.
	countedBlock = 16
	// nativeRepeat is the longest repetition that is left to llama.cpp's {m,n};
	// longer ones are cut into blocks of blockRepeat, see repeat.go.
	nativeRepeat = 256
	blockRepeat  = 64
	// arrayRepeat does the same for array elements: larger, because cutting
	// doubles the parse states for as long as an element is open.
	arrayRepeat = MaxRepetition
	// integerDigits, fractionDigits and exponentDigits bound generated numbers where
	// the schema does not: what a double can hold, and no endless digits.
	integerDigits  = 16
	fractionDigits = 16
	exponentDigits = 2

	// schemaWork bounds the steps of compiling one Builder's schemas: schemas
	// merged, names looked up, derivatives taken. It is about a quarter of a second.
	schemaWork = 2_000_000
	// workBytes of text are copied or compared in one step.
	workBytes = 16
	// probeWork bounds the steps of the dry run of a grammar.
	probeWork = 1_000_000
	// messageMax bounds what error messages quote from outside, in bytes.
	messageMax = 120
)
