"""Renders snippets.txt with Jinja2 as transformers sets it up, into snippets.jsonl.

Run it after adding snippets: python3 reference.py (needs jinja2 3.1).
Snippets are separated by lines of dashes.
"""
import datetime
import json
import os

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    now = datetime.datetime(2026, 3, 9, 14, 5, 7)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


VARS = {
    "s": "Hello, World",
    "u": "Zürich \u2192 \U0001f600 \"q\" 'a' \\ \t\n",
    "words": "  the quick  brown\tfox \n",
    "n": 7,
    "x": 2.5,
    "yes": True,
    "nothing": None,
    "empty": "",
    "nums": [3, 1, 2],
    "names": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, 2, {"k": None}], "items": "own", "C": False},
    "msgs": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U1"},
        {"role": "assistant", "content": "A", "tool_calls": [{"function": {"name": "f", "arguments": {"q": 1.0}}}]},
        {"role": "user", "content": "U2"},
    ],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}],
}

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    source = open(os.path.join(here, "snippets.txt"), encoding="utf-8").read()
    with open(os.path.join(here, "snippets.jsonl"), "w", encoding="utf-8") as out:
        out.write(json.dumps({"vars": VARS}, ensure_ascii=False) + "\n")
        for snippet in source.split("\n----\n"):
            case = {"src": snippet}
            try:
                case["want"] = environment().from_string(snippet).render(**VARS)
            except Exception as e:
                case["err"] = f"{type(e).__name__}: {e}"
            out.write(json.dumps(case, ensure_ascii=False) + "\n")
