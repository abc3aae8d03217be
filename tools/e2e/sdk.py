"""Drives a running node through the official openai, anthropic and ollama SDKs.

    sdk.py BASE_URL MODEL

Every check prints a line; the last line is "N passed, N failed".
"""
import base64
import json
import struct
import sys
import traceback
import urllib.request

import anthropic
import ollama
import openai

BASE, MODEL = sys.argv[1].rstrip("/"), sys.argv[2]
ai = openai.OpenAI(base_url=BASE + "/v1", api_key="unused", max_retries=0, timeout=120)
an = anthropic.Anthropic(base_url=BASE, api_key="unused", max_retries=0, timeout=120)
ol = ollama.Client(host=BASE, timeout=120)
HELLO = [{"role": "user", "content": "Say hello in one short sentence."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 40}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
checks = []


def check(fn):
    checks.append(fn)
    return fn


@check
def openai_models():
    ids = [m.id for m in ai.models.list()]
    assert MODEL in ids, ids
    assert ai.models.retrieve(MODEL).id == MODEL


@check
def openai_chat():
    r = ai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=24, temperature=0)
    assert r.choices[0].message.content.strip(), r
    assert r.choices[0].finish_reason in ("stop", "length")
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    return r.choices[0].message.content


@check
def openai_stream_equals_whole():
    whole = ai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=32, temperature=0).choices[0].message.content
    text, usage, reasons = "", None, []
    for chunk in ai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=32, temperature=0, stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert text == whole, (text, whole)
    assert len(reasons) == 1 and usage.completion_tokens > 0, (reasons, usage)


@check
def openai_seed_repeats():
    def answer(seed):
        return ai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=24, temperature=1.2, seed=seed).choices[0].message.content
    assert answer(11) == answer(11)
    assert len({answer(s) for s in (1, 2, 3, 4)}) > 1


@check
def openai_stop_and_n():
    r = ai.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Count from 1 to 9: 1, 2, 3"}], max_tokens=40, temperature=0.8, n=3, seed=5, stop=["5", "\n\n"])
    assert sorted(c.index for c in r.choices) == [0, 1, 2]
    assert all("5" not in (c.message.content or "") for c in r.choices)


@check
def openai_tools_required():
    r = ai.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "What is the weather in Rome for 3 days?"}], tools=[WEATHER], tool_choice="required", temperature=0, max_tokens=96)
    choice = r.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    call = choice.message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "get_weather" and isinstance(arguments["city"], str) and 1 <= arguments["days"] <= 7, arguments
    follow = HELLO + [choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    again = ai.chat.completions.create(model=MODEL, messages=follow, tools=[WEATHER], max_tokens=16, temperature=0)
    assert again.choices[0].finish_reason in ("stop", "length", "tool_calls")
    return arguments


@check
def openai_tools_streamed():
    name, arguments, ids, reason = "", "", set(), None
    for chunk in ai.chat.completions.create(model=MODEL, messages=HELLO, tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "get_weather"}}, temperature=0, max_tokens=96, stream=True):
        choice = chunk.choices[0]
        reason = choice.finish_reason or reason
        for call in choice.delta.tool_calls or []:
            ids |= {call.id} if call.id else set()
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert name == "get_weather" and len(ids) == 1 and reason == "tool_calls", (name, ids, reason)
    assert set(json.loads(arguments)) == {"city", "days"}


@check
def openai_json_schema():
    r = ai.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Describe a person called Ada who is 36."}], temperature=0, max_tokens=96,
                                   response_format={"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}})
    person = json.loads(r.choices[0].message.content)
    assert set(person) == {"name", "age"} and 0 <= person["age"] <= 120, person
    return person


@check
def openai_json_object():
    r = ai.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Reply with a JSON object about a cat."}], temperature=0, max_tokens=400, response_format={"type": "json_object"})
    if r.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(r.choices[0].message.content), dict)


@check
def openai_logprobs():
    r = ai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8, temperature=0, logprobs=True, top_logprobs=4)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens, (len(content), r.usage)
    for t in content:
        assert t.logprob <= 0 and len(t.top_logprobs) == 4
        assert abs(max(x.logprob for x in t.top_logprobs) - t.logprob) < 1e-4, t
    assert "".join(t.token for t in content).strip() in r.choices[0].message.content


@check
def openai_completions():
    r = ai.completions.create(model=MODEL, prompt=["The sky is", "Grass is"], max_tokens=6, temperature=0, logprobs=2)
    assert [c.index for c in r.choices] == [0, 1] and all(c.text for c in r.choices)
    assert "".join(c.text for c in ai.completions.create(model=MODEL, prompt="The sky is", max_tokens=6, temperature=0, stream=True) for c in c.choices) == r.choices[0].text


@check
def openai_embeddings():
    texts = ["a cat sat on the mat", "a kitten sat on the rug", "the stock market fell today"]
    floats = ai.embeddings.create(model=MODEL, input=texts, encoding_format="float").data
    coded = ai.embeddings.create(model=MODEL, input=texts, encoding_format="base64").data
    for a, b in zip(floats, coded):
        raw = base64.b64decode(b.embedding) if isinstance(b.embedding, str) else struct.pack(f"<{len(b.embedding)}f", *b.embedding)
        assert max(abs(x - y) for x, y in zip(a.embedding, struct.unpack(f"<{len(a.embedding)}f", raw))) < 1e-6
        assert abs(sum(x * x for x in a.embedding) - 1) < 1e-3
    dot = lambda a, b: sum(x * y for x, y in zip(a.embedding, b.embedding))
    assert dot(floats[0], floats[1]) > dot(floats[0], floats[2])


@check
def openai_errors():
    def refused(kind, **kw):
        try:
            ai.chat.completions.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 4, **kw})
        except kind as e:
            return e
        raise AssertionError(f"not refused: {kw}")
    assert refused(openai.NotFoundError, model="no-such-model").code == "model_not_found"
    assert "temperature" in str(refused(openai.BadRequestError, temperature=9))
    assert refused(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 200000}]).code in ("context_length_exceeded", None)
    assert "audio" in str(refused(openai.BadRequestError, extra_body={"audio": {"voice": "x", "format": "wav"}}))


@check
def openai_unknown_field_is_named():
    raw = ai.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=2, extra_body={"nonsense": 1})
    assert "nonsense" in raw.headers.get("x-tandem-warning", ""), dict(raw.headers)
    assert raw.headers.get("x-tandem-node") and raw.headers.get("x-tandem-reason")


@check
def openai_cached_tokens():
    long = [{"role": "user", "content": "Here is a list of words: " + "apple pear plum " * 60}]
    ai.chat.completions.create(model=MODEL, messages=long, max_tokens=2, temperature=0)
    u = ai.chat.completions.create(model=MODEL, messages=long, max_tokens=2, temperature=0).usage
    assert 0 < u.prompt_tokens_details.cached_tokens < u.prompt_tokens, u


GREEDY = {"extra_body": {"temperature": 0}}  # the SDK has no name for it any more
READ = {"name": "get_weather", "description": "Get the weather of a city", "input_schema": WEATHER["function"]["parameters"]}


@check
def anthropic_models():
    assert MODEL in [m.id for m in an.models.list()]
    assert an.models.retrieve(MODEL).display_name == MODEL


@check
def anthropic_message_and_count():
    asked = {"model": MODEL, "system": "Answer in one sentence.", "messages": HELLO}
    m = an.messages.create(**asked, max_tokens=24, **GREEDY)
    assert m.content[0].type == "text" and m.content[0].text.strip() and m.stop_reason in ("end_turn", "max_tokens"), m
    prompt = m.usage.input_tokens + m.usage.cache_read_input_tokens
    assert an.messages.count_tokens(**asked).input_tokens == prompt > 0, m.usage
    again = an.messages.create(**asked, max_tokens=24, **GREEDY)
    assert again.content[0].text == m.content[0].text and again.usage.cache_read_input_tokens > 0, again.usage
    return m.content[0].text


@check
def anthropic_stream_equals_whole():
    asked = {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hello in one short sentence."}]}], "max_tokens": 32, **GREEDY}
    whole = an.messages.create(**asked)
    with an.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text, (text, whole)
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, (final, whole)
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    kinds = [e.type for e in an.messages.create(**asked, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds


@check
def anthropic_stop_sequence():
    m = an.messages.create(model=MODEL, messages=HELLO, max_tokens=32, **GREEDY)
    word = m.content[0].text.split()[1]
    cut = an.messages.create(model=MODEL, messages=HELLO, max_tokens=32, **GREEDY, stop_sequences=["zzzz", word])
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == word and m.content[0].text.startswith(cut.content[0].text), cut


@check
def anthropic_tools():
    question = [{"role": "user", "content": "What is the weather in Rome for 3 days?"}]
    m = an.messages.create(model=MODEL, messages=question, tools=[READ], tool_choice={"type": "any"}, **GREEDY, max_tokens=96)
    call = m.content[-1]
    assert m.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "get_weather" and 1 <= call.input["days"] <= 7, m
    follow = question + [m.to_param(), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 21 degrees"}]}]
    assert an.messages.create(model=MODEL, messages=follow, tools=[READ], max_tokens=16, **GREEDY).content
    with an.messages.stream(model=MODEL, messages=question, tools=[READ], tool_choice={"type": "tool", "name": "get_weather"}, **GREEDY, max_tokens=96) as stream:
        streamed = stream.get_final_message()
    assert streamed.stop_reason == "tool_use" and set(streamed.content[-1].input) == {"city", "days"}, streamed
    return call.input


@check
def anthropic_json_schema():
    m = an.messages.create(model=MODEL, messages=[{"role": "user", "content": "Describe a person called Ada who is 36."}], **GREEDY, max_tokens=96,
                           output_config={"format": {"type": "json_schema", "schema": PERSON}})
    assert set(json.loads(m.content[0].text)) == {"name", "age"}, m


@check
def anthropic_errors():
    def refused(kind, **kw):
        try:
            an.messages.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 4, **kw})
        except kind as e:
            return e
        raise AssertionError(f"not refused: {kw}")
    assert refused(anthropic.NotFoundError, model="no-such-model").body["error"]["type"] == "not_found_error"
    assert "thinking" in str(refused(anthropic.BadRequestError, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048))
    assert "bash_20250124" in str(refused(anthropic.BadRequestError, tools=[{"type": "bash_20250124", "name": "bash"}]))
    assert "image" in str(refused(anthropic.BadRequestError, messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]))
    assert refused(anthropic.BadRequestError, messages=[{"role": "user", "content": "word " * 200000}]).body["error"]["type"] == "invalid_request_error"


@check
def responses_text_and_stream():
    asked = {"model": MODEL, "instructions": "Answer in one sentence.", "input": "Say hello.", "max_output_tokens": 24, "temperature": 0}
    r = ai.responses.create(**asked)
    assert r.output_text.strip() and r.status in ("completed", "incomplete") and r.instructions == asked["instructions"], r
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens
    assert ai.responses.input_tokens.count(model=MODEL, instructions=asked["instructions"], input=asked["input"]).input_tokens == r.usage.input_tokens
    text, last, numbers = "", None, []
    for e in ai.responses.create(**asked, stream=True):
        numbers.append(e.sequence_number)
        if e.type == "response.output_text.delta":
            text += e.delta
        last = e
    assert text == r.output_text == last.response.output_text and last.type == "response." + r.status, (text, r, last)
    assert numbers == list(range(len(numbers))), numbers
    with ai.responses.stream(**{**asked, "max_output_tokens": 200}) as stream:
        final = stream.get_final_response()
    assert final.status == "completed" and final.output_text.startswith(text[:10]), final
    return r.output_text


@check
def responses_tools():
    tool = {"type": "function", **WEATHER["function"], "strict": True}
    question = [{"role": "user", "content": "What is the weather in Rome for 3 days?"}]
    r = ai.responses.create(model=MODEL, input=question, tools=[tool], tool_choice="required", temperature=0, max_output_tokens=96)
    call = r.output[-1]
    assert call.type == "function_call" and set(json.loads(call.arguments)) == {"city", "days"}, r
    follow = question + [o.model_dump(exclude_none=True) for o in r.output] + [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    assert ai.responses.create(model=MODEL, input=follow, tools=[tool], temperature=0, max_output_tokens=16).output
    done = [e for e in ai.responses.create(model=MODEL, input=question, tools=[tool], tool_choice="required", temperature=0, max_output_tokens=96, stream=True) if e.type == "response.function_call_arguments.done"]
    assert len(done) == 1 and done[0].arguments == call.arguments, done
    return call.arguments


@check
def responses_json_schema():
    r = ai.responses.create(model=MODEL, input="Describe a person called Ada who is 36.", temperature=0, max_output_tokens=96,
                            text={"format": {"type": "json_schema", "name": "person", "strict": True, "schema": PERSON}})
    assert set(json.loads(r.output_text)) == {"name", "age"}, r


@check
def responses_errors():
    for name, value in {"previous_response_id": "resp_1", "store": True, "background": True, "truncation": "auto", "tools": [{"type": "web_search"}]}.items():
        try:
            ai.responses.create(model=MODEL, input="hi", **{name: value})
        except openai.BadRequestError as e:
            assert name in str(e), (name, e)
        else:
            raise AssertionError(f"not refused: {name}")


@check
def llama_server_routes():
    get = lambda path: json.load(urllib.request.urlopen(BASE + path, timeout=60))
    post = lambda path, body: json.load(urllib.request.urlopen(urllib.request.Request(BASE + path, json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=60))
    props = get("/props")
    assert props["total_slots"] > 0 and props["default_generation_settings"]["n_ctx"] > 0 and props["chat_template"], props
    pieces = post("/tokenize", {"content": "two riders, one bicycle", "with_pieces": True})["tokens"]
    assert "".join(p["piece"] for p in pieces) == "two riders, one bicycle", pieces
    assert post("/detokenize", {"tokens": [p["id"] for p in pieces]})["content"] == "two riders, one bicycle"


@check
def ollama_chat_and_stream():
    whole = ol.chat(model=MODEL, messages=HELLO, options={"temperature": 0, "num_predict": 24})
    assert whole.message.content.strip() and whole.done and whole.eval_count > 0 and whole.eval_duration > 0
    parts = list(ol.chat(model=MODEL, messages=HELLO, options={"temperature": 0, "num_predict": 24}, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content and parts[-1].done


@check
def ollama_generate():
    r = ol.generate(model=MODEL, prompt="The capital of France is", raw=True, options={"temperature": 0, "num_predict": 5})
    assert r.response and r.done_reason in ("stop", "length") and r.prompt_eval_count > 0


@check
def ollama_format_and_tools():
    r = ol.chat(model=MODEL, messages=[{"role": "user", "content": "Describe Ada, 36."}], format=PERSON, options={"temperature": 0, "num_predict": 96})
    assert set(json.loads(r.message.content)) == {"name", "age"}
    ol.chat(model=MODEL, messages=HELLO, tools=[WEATHER], options={"temperature": 0, "num_predict": 32})


@check
def ollama_embed():
    r = ol.embed(model=MODEL, input=["one", "two"])
    assert len(r.embeddings) == 2 and len(r.embeddings[0]) == len(r.embeddings[1]) > 8
    assert len(ol.embeddings(model=MODEL, prompt="one").embedding) == len(r.embeddings[0])


@check
def ollama_lists():
    assert MODEL in [m.model for m in ol.list().models]
    shown = ol.show(MODEL)
    assert shown.details.family and shown.modelinfo
    assert MODEL in [m.model for m in ol.ps().models]


@check
def ollama_errors():
    try:
        ol.chat(model="no-such-model", messages=HELLO)
    except ollama.ResponseError as e:
        assert e.status_code == 404
    else:
        raise AssertionError("not refused")


def main():
    failed = 0
    for fn in checks:
        try:
            note = fn()
            print(f"ok   {fn.__name__}{f': {note}' if note else ''}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {fn.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
