package chat

import "encoding/json"

// Message is one turn of a conversation, already validated: Role is one of
// system, developer, user, assistant, tool; text parts are joined in order.
type Message struct {
	Role      string
	Content   string
	Reasoning string // assistant only: thoughts that came back from the client; templates may show or drop them
	Name      string // optional participant or tool name

	ToolCalls  []ToolCall // assistant only
	ToolCallID string     // tool only: the call this answers
}

// ToolCall is a call that the model made. Arguments is always one complete JSON
// object in a finished call; templates get it parsed.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema; nil means an object without properties
	Strict      bool
}

// ToolChoice says whether the model may, must or must not call tools.
type ToolChoice struct {
	Mode string // "auto", "none", "required", "function"
	Name string // with Mode "function"
}
