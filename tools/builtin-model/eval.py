"""Asks a running node the listed questions and counts the right answers. Needs nothing but Python.

    python3 eval.py --base http://127.0.0.1:9494 --model tandem-tiny
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

QUESTIONS = Path(__file__).resolve().parents[2] / "node" / "models" / "builtin" / "questions.json"


def ask(args: argparse.Namespace, question: str) -> str:
    messages = [{"role": "system", "content": args.system}] if args.system else []
    messages.append({"role": "user", "content": question})
    body = {"model": args.model, "messages": messages, "temperature": 0, "max_tokens": 120}
    headers = {"Content-Type": "application/json"}
    if args.key:
        headers["Authorization"] = f"Bearer {args.key}"
    request = urllib.request.Request(args.base.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["message"]["content"] or ""


def is_right(listed: dict, answer: str) -> bool:
    """Each entry of want is a list of words of which the answer must hold one."""
    answer = answer.lower()
    return all(any(word in answer for word in words) for words in listed["want"])


def main() -> int:
    p = argparse.ArgumentParser(description="Checks the built-in model of a running node.")
    p.add_argument("--base", default="http://127.0.0.1:9494")
    p.add_argument("--model", default="tandem-tiny")
    p.add_argument("--key", default="", help="API key")
    p.add_argument("--system", default="", help="system prompt")
    p.add_argument("--questions", type=Path, default=QUESTIONS)
    p.add_argument("--at-least", type=int, default=0, help="exit with 1 if fewer are right")
    p.add_argument("--show", action="store_true", help="print every answer")
    args = p.parse_args()

    questions = json.loads(args.questions.read_text(encoding="utf-8"))
    right = {False: 0, True: 0}
    for listed in questions:
        try:
            answer = ask(args, listed["question"])
        except (urllib.error.URLError, TimeoutError) as e:
            detail = e.read().decode(errors="replace") if isinstance(e, urllib.error.HTTPError) else ""
            print(f"{args.base}: {e} {detail}", file=sys.stderr)
            return 2
        good = is_right(listed, answer)
        right[listed["heldOut"]] += good
        if args.show or not good:
            print(f"{'right' if good else 'WRONG'} [{listed['topic']}] {listed['question']}\n    {answer}")
    for held_out, name in ((False, "trained"), (True, "held-out")):
        print(f"{name} phrasings: {right[held_out]} of {sum(q['heldOut'] == held_out for q in questions)} right")
    print(f"{sum(right.values())} of {len(questions)} right")
    return 0 if sum(right.values()) >= args.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
