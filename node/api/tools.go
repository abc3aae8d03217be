package api

import (
	"strconv"

	"tandem/node/chat"
)

// tools reads the functions that the model may call.
func (o *object) tools() []chat.Tool {
	list, _ := o.list("tools", MaxTools)
	var tools []chat.Tool
	names := map[string]bool{}
	for i, raw := range list {
		t := o.object(o.param(at("tools", i)), raw)
		tool := t.tool()
		if o.err != nil {
			return nil
		}
		if names[tool.Name] {
			t.bad("function.name", "%q is there twice", tool.Name)
			return nil
		}
		names[tool.Name] = true
		tools = append(tools, tool)
	}
	return tools
}

func (o *object) tool() chat.Tool {
	var kind string
	o.oneOf("type", &kind, "function")
	f := o.child("function")
	if f == nil {
		o.bad("function", "is required")
		return chat.Tool{}
	}
	tool := f.functionTool()
	o.rest()
	return tool
}

// functionTool reads what describes a function.
func (o *object) functionTool() chat.Tool {
	var tool chat.Tool
	o.text("name", &tool.Name, MaxIdentifier)
	if !validToolName(tool.Name) {
		o.bad("name", "%s must have 1 to %d letters, digits, _ or -", strconv.Quote(clip(tool.Name, 40)), MaxToolName)
	}
	o.text("description", &tool.Description, MaxSchema)
	if raw := o.take("parameters"); raw != nil && raw[0] != '{' {
		o.wrong("parameters", raw, "an object")
	}
	tool.Parameters = o.schema("parameters")
	o.flag("strict", &tool.Strict)
	o.rest()
	return tool
}

func validToolName(name string) bool {
	if name == "" || len(name) > MaxToolName {
		return false
	}
	for _, c := range []byte(name) {
		if !isAlnum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// toolChoice reads tool_choice, which may name only a tool that is there.
func (o *object) toolChoice(tools []chat.Tool) chat.ToolChoice {
	const name = "tool_choice"
	choice := chat.ToolChoice{Mode: "none"}
	if len(tools) > 0 {
		choice.Mode = "auto"
	}
	raw := o.take(name)
	switch {
	case raw == nil:
		return choice
	case raw[0] == '{':
		choice = o.object(name, raw).namedTool()
	case raw[0] == '"':
		o.oneOf(name, &choice.Mode, "none", "auto", "required")
	default:
		o.wrong(name, raw, "a string or an object")
	}
	return o.checkChoice(choice, tools)
}

// checkChoice holds a choice to the tools that are there.
func (o *object) checkChoice(choice chat.ToolChoice, tools []chat.Tool) chat.ToolChoice {
	const name = "tool_choice"
	switch {
	case o.err != nil:
	case len(tools) == 0 && (choice.Mode == "required" || choice.Mode == "function"):
		o.bad(name, "%q needs tools", choice.Mode)
	case len(tools) == 0:
		choice.Mode = "none"
	case choice.Mode == "function" && !hasTool(tools, choice.Name):
		o.bad(name, "%q is not among the tools", clip(choice.Name, MaxToolName))
	}
	return choice
}

// parallelCalls reads parallel_tool_calls. A function that is named is called once,
// whatever the model would go on with.
func (o *object) parallelCalls(choice chat.ToolChoice) bool {
	parallel := true
	o.flag("parallel_tool_calls", &parallel)
	return parallel && choice.Mode != "function"
}

func (o *object) namedTool() chat.ToolChoice {
	choice := chat.ToolChoice{Mode: "function"}
	var kind string
	o.oneOf("type", &kind, "function")
	f := o.child("function")
	if f == nil || !f.text("name", &choice.Name, MaxIdentifier) {
		o.bad("function.name", "is required")
		return choice
	}
	f.rest()
	o.rest()
	return choice
}

func hasTool(tools []chat.Tool, name string) bool {
	for _, t := range tools {
		if t.Name == name {
			return true
		}
	}
	return false
}
