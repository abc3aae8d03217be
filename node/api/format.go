package api

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// responseFormat reads OpenAI's response_format and the grammar extension.
func (o *object) responseFormat() Format {
	var f Format
	if format := o.child("response_format"); format != nil {
		format.formatOf(&f)
	}
	var grammar string
	if o.text("grammar", &grammar, MaxGrammar) && grammar != "" {
		if f.JSON || f.Schema != nil {
			o.bad("grammar", "cannot be combined with a response_format other than text")
		}
		f.Grammar = grammar
	}
	return f
}

func (o *object) formatOf(f *Format) {
	var kind string
	if !o.oneOf("type", &kind, "text", "json_object", "json_schema") {
		if o.err == nil {
			o.bad("type", "is required")
		}
		return
	}
	switch kind {
	case "json_object":
		if f.Schema = o.schema("schema"); f.Schema == nil {
			f.JSON = true
		}
	case "json_schema":
		s := o.child("json_schema")
		if s == nil {
			o.bad("json_schema", "is required with type json_schema")
			return
		}
		s.schemaFormat(f)
	}
	o.rest()
}

func (o *object) schemaFormat(f *Format) {
	var name, description string
	var strict bool // a schema is always kept to; there is no other mode
	if o.text("name", &name, MaxIdentifier) && !validToolName(name) {
		o.bad("name", "%s must have 1 to %d letters, digits, _ or -", strconv.Quote(clip(name, 40)), MaxToolName)
	}
	o.text("description", &description, MaxSchema)
	o.flag("strict", &strict)
	if f.Schema = o.schema("schema"); f.Schema == nil {
		o.bad("schema", "is required")
	}
	o.rest()
}

// schema reads a JSON Schema, which is an object, true or false. What is in it is
// checked where it is compiled.
func (o *object) schema(name string) json.RawMessage {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' && raw[0] != 't' && raw[0] != 'f' {
		o.wrong(name, raw, "a JSON Schema")
		return nil
	}
	if len(raw) > MaxSchema {
		o.bad(name, "has %d bytes, at most %d are allowed", len(raw), MaxSchema)
		return nil
	}
	return bytes.Clone(raw) // the body it is part of can be freed
}

// ollamaFormat reads "json", or a JSON Schema.
func (o *object) ollamaFormat() Format {
	const name = "format"
	raw := o.take(name)
	switch {
	case raw == nil:
		return Format{}
	case raw[0] == '{':
		return Format{Schema: o.schema(name)}
	case string(raw) == `"json"`:
		return Format{JSON: true}
	case string(raw) == `""`:
		return Format{}
	}
	o.bad(name, `%s must be "json" or a JSON Schema`, show(raw))
	return Format{}
}
