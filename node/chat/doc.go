// Package chat is what stands between a conversation and a model that knows only
// text: it turns messages into a prompt, and the text that is generated back into
// content, thoughts and tool calls.
//
// A [Template] is made once per model by [Parse], from the Jinja template in the
// model's file (package jinja runs it, on a budget) and the texts of its control
// tokens. Parse renders small conversations to find out what the template can
// show: system messages, tools, several calls at once, thinking; in which shape it
// wants its input; and in which format its model writes calls. What a template
// cannot show is put into messages that it can, with a warning: system text goes
// into the user's message, messages are joined where roles must alternate, and
// tools are described in words of our own. Models without a template get a plain
// one, chosen by vocabulary.
//
// [Template.Render] gives a [Prompt]: segments to be tokenised one by one. User
// text never yields a control token. The renderer keeps track of each byte that
// came from outside; afterwards every place where a control text could be read is
// looked up, and if a single byte of it is foreign, the foreign part becomes a
// plain segment, which is tokenised without control tokens. So it does not matter
// whether a mark was typed, or came together from two fields or from a field and
// the template around it. Nothing is escaped, and the text is not changed.
//
// [Template.ToolGrammar] constrains calls, and a [Parser] reads them. Both follow
// the format of the family: hermes (also Qwen), llama3, mistral, mistral-args
// (newer versions), harmony (gpt-oss), or generic, which is JSON that
// conversation.tellTools asks for. A call is given whole, once its arguments are
// known to be a JSON object and its name a tool's. Anything else that looked like
// one is content: an unknown tool, broken JSON, and a call that max_tokens cut
// off, whose finish reason stays length. With tool choice none there are no calls
// and no tools in the prompt.
//
// Tags and markers that are control tokens give no text when they are generated;
// [Template.Markers] lists those that a Parser must see nevertheless.
//
// Nothing here starts a goroutine or blocks, and only Parser has state. Errors of
// Render and ToolGrammar are *[RenderError], whose text is for the client; Parse
// fails with a *jinja.Error. Tokens, stop texts, UTF-8 cut between tokens and the
// sampling are others' business: node and node/engine.
package chat
