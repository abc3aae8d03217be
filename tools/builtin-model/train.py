"""Trains the built-in model and writes it, with the question list of its check, into node/models/builtin.

    python3 train.py            # the model in the repository
    python3 train.py --help     # other sizes, lengths, seeds
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch

from chat import Encoder, train_tokenizer
from corpus import Corpus
from gguf_out import round_weights, write
from model import Llama, Shape

REPOSITORY = Path(__file__).resolve().parents[2]


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description="Trains the built-in model of tandem.")
    p.add_argument("--seed", type=int, default=9494)
    p.add_argument("--tokens", type=int, default=3_000_000, help="tokens to train on (%(default)s)")
    p.add_argument("--batch", type=int, default=1536, help="tokens in one step (%(default)s)")
    p.add_argument("--vocabulary", type=int, default=1536)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--hidden", type=int, default=448)
    p.add_argument("--rate", type=float, default=2e-3, help="highest learning rate (%(default)s)")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--out", type=Path, default=REPOSITORY / "node" / "models" / "builtin")
    return p.parse_args()


def batches(examples, size: int, rng: random.Random):
    """Batches of at most size tokens, of examples of like length, in random order."""
    jitter = sorted(examples, key=lambda e: len(e[0]) * (1 + 0.1 * rng.random()))
    made, current, longest = [], [], 0
    for example in jitter:
        longest = max(longest, len(example[0]))
        if current and longest * (len(current) + 1) > size:
            made.append(current)
            current, longest = [], len(example[0])
        current.append(example)
    made.append(current)
    rng.shuffle(made)
    return made


def tensors(batch, pad: int):
    length = max(len(ids) for ids, _ in batch)
    tokens = torch.full((len(batch), length), pad)
    weights = torch.zeros(len(batch), length)
    for i, (ids, w) in enumerate(batch):
        tokens[i, : len(ids)] = torch.tensor(ids)
        weights[i, : len(w)] = torch.tensor(w)
    return tokens, weights


def rate_at(step: int, steps: int, highest: float) -> float:
    warm = max(1, steps // 50)
    if step < warm:
        return highest * (step + 1) / warm
    return highest * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm))))


def fit(model: Llama, steps, pad: int, highest: float) -> None:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  betas=(0.9, 0.98), fused=True)
    began, recent = time.time(), 0.0
    for step, batch in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, len(steps), highest)
        loss = model.loss(*tensors(batch, pad))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent = loss.item() if step == 0 else 0.98 * recent + 0.02 * loss.item()
        if step % 100 == 0 or step == len(steps) - 1:
            print(f"step {step:5d} of {len(steps)}  loss {recent:.4f}  {time.time() - began:6.0f} s", flush=True)


def is_right(listed: dict, answer: str) -> bool:
    answer = answer.lower()
    return all(any(word in answer for word in words) for words in listed["want"])


def check(model: Llama, encoder: Encoder, questions: list[dict], system: str = "") -> None:
    prompts = [encoder.question(q["question"], system) for q in questions]
    answers = [encoder.tokenizer.decode(a) for a in model.answer(prompts, encoder.end, 80)]
    for held_out in (False, True):
        rows = [(q, a) for q, a in zip(questions, answers) if q["heldOut"] == held_out]
        right = sum(is_right(q, a) for q, a in rows)
        print(f"{'held-out' if held_out else 'trained'} phrasings{' under a system prompt' if system else ''}: {right} of {len(rows)} right")
        for q, a in rows:
            if not is_right(q, a):
                print(f"  wrong [{q['topic']}] {q['question']!r}: {a!r}")


def make_tokenizer(args: argparse.Namespace):
    corpus = Corpus(args.seed + 1000)
    texts = [t for c in (corpus.conversation(1) for _ in range(20_000)) for turn in c.turns for t in (turn.user, turn.answer)]
    return train_tokenizer(texts + corpus.systems + ["system\n", "user\n", "assistant\n", "tool\n"] * 1000, args.vocabulary)


def cycle(model: Llama, encoder: Encoder, args: argparse.Namespace, number: int, tokens: int, rate: float) -> None:
    """Trains on new conversations, with a learning rate that rises, then falls to near zero."""
    conversations = Corpus(args.seed + number).conversations(tokens, lambda c: len(encoder.training(c)[0]))
    steps = batches([encoder.training(c) for c in conversations], args.batch, random.Random(args.seed + number))
    print(f"cycle {number}: {len(conversations)} conversations, {len(steps)} steps", flush=True)
    fit(model, steps, encoder.pad, rate)


def save(model: Llama, encoder: Encoder, args: argparse.Namespace) -> None:
    """Rounds the weights, writes the model and the question list, and checks the answers."""
    round_weights(model)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "tandem-tiny.gguf"
    write(path, model, encoder.tokenizer)
    questions = Corpus(args.seed).questions()
    rows = ",\n".join(json.dumps(q) for q in questions)
    (args.out / "questions.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    print(f"wrote {path}, {path.stat().st_size} bytes", flush=True)
    check(model, encoder, questions)
    check(model, encoder, questions[::3], "You are a helpful assistant.")


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    encoder = Encoder(make_tokenizer(args))
    model = Llama(Shape(vocabulary=encoder.tokenizer.get_vocab_size(), layers=args.layers, hidden=args.hidden))
    print(f"{encoder.tokenizer.get_vocab_size()} tokens in the vocabulary, {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    cycle(model, encoder, args, 0, args.tokens * 3 // 4, args.rate)
    cycle(model, encoder, args, 1, args.tokens // 4, args.rate / 2)
    save(model, encoder, args)


if __name__ == "__main__":
    main()
