"""What kept KV is worth, and what it costs, on this machine, in one run.

    kv.py --node bin/node --model FILE [--rounds 10] [--tokens 3969] [--json]

Starts nodes of its own on free ports with data folders of its own and ends them.
Prompts are random token ids, so nothing is shared between them. Numbers are
medians. A prompt of a whole number of blocks and one token leaves one token to
compute after a restore.
"""
import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request


class Node:
    """One node in a process of its own."""

    def __init__(self, args, folder, *flags):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}"
        self.model = os.path.basename(args.model).removesuffix(".gguf")
        command = [args.node, "serve", "--data-dir", folder, "--listen", f"127.0.0.1:{port}", "--model", os.path.abspath(args.model),
                   "--ctx", "4608", "--parallel", "2", "--self-bench", "off", "--log-level", "error", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not self.kept(flags):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the node did not become ready")
            time.sleep(0.05)

    def settle(self):
        """Waits until the node has got the memory for its blocks, which it does while it is idle."""
        before = -1
        while (now := self.status()["kv"]["ram_ready_bytes"]) != before:
            before = now
            time.sleep(1)

    def kept(self, flags):
        """Ready, and blocks are kept unless that is turned off."""
        try:
            status = self.status()
        except OSError:
            return False
        off = "--kv-ram" in flags and flags[flags.index("--kv-ram") + 1] == "0"
        return status["node"]["ready"] and (off or status["models"][0]["kv_kept"])

    def status(self):
        with urllib.request.urlopen(self.base + "/admin/status", timeout=10) as r:
            return json.load(r)

    def complete(self, prompt, tokens):
        """Times of the tokens of one answer from the start on, its text, and the cached tokens."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        request = urllib.request.Request(self.base + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        start, times, text, cached = time.perf_counter(), [], "", 0
        with urllib.request.urlopen(request, timeout=600) as r:
            for line in r:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("usage"):
                    cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
                for choice in event["choices"]:
                    times.append(time.perf_counter() - start)
                    text += choice["text"]
        return times, text, cached

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def ttft(node, prompts, least):
    """Times to the first token, and the texts; least tokens must have been restored."""
    times, texts = [], []
    for prompt in prompts:
        t, text, cached = node.complete(prompt, 8)
        if cached < least:
            raise SystemExit(f"{cached} tokens were cached, at least {least} were expected")
        times.append(t[0])
        texts.append(text)
    return times, texts


def gaps(node, seed, others=lambda: None):
    """Gaps between the tokens of one stream while others runs."""
    out = {}

    def stream():
        rng = random.Random(seed)
        out["times"] = node.complete([rng.randrange(300, 700) for _ in range(16)], 200)[0]

    thread = threading.Thread(target=stream)
    thread.start()
    while thread.is_alive():
        if others() is None:
            break
    thread.join()
    times = out["times"][2:]
    return [b - a for a, b in zip(times, times[1:])]


def reuse(args, work, prompt):
    """TTFT cold, from memory and from disk, and what restores do to a stream."""
    keep = ["--kv-ram", "3GiB", "--kv-disk", "6GiB"]
    prompts = [prompt(args.tokens) for _ in range(args.rounds + 2)]  # the last two only push the others out of the engine
    whole = (args.tokens - 1) // 64 * 64
    node = Node(args, work + "/a", *keep)
    cold, texts = ttft(node, prompts, 0)
    ram, again = ttft(node, prompts[:-2], whole)
    result = {"same_text_ram": again == texts[:-2]}

    quiet = gaps(node, 1)
    turn = iter(range(10**6))
    importing = gaps(node, 2, lambda: node.complete(prompts[next(turn) % (args.rounds + 2)], 1))
    once_each = [gaps(node, 4 + i, once(lambda: node.complete(prompts[next(turn) % (args.rounds + 2)], 1))) for i in range(5)]
    node.stop()
    node = Node(args, work + "/a", *keep)
    disk, again = ttft(node, prompts[:-2], whole)
    result["same_text_disk"] = again == texts[:-2]
    node.stop()
    for name, values in {"cold": cold[:-2], "ram": ram, "disk": disk}.items():
        result["ttft_" + name] = statistics.median(values)
    result["gap_quiet"], result["gap_importing"] = statistics.mean(quiet), statistics.mean(importing)
    result["gap_importing_max"] = max(importing)
    result["gap_one_import"] = statistics.median(statistics.mean(g) for g in once_each)
    result["gap_one_import_max"] = max(max(g) for g in once_each)
    result["gap_quiet_max"] = max(quiet)
    return result


def idle(args, work, prompt):
    """What keeping costs while nothing is reused."""
    on, off = Node(args, work + "/b", "--kv-ram", "1GiB", "--kv-disk", "6GiB"), Node(args, work + "/c", "--kv-ram", "0")
    on.settle()
    rates = {"decode_on": [], "decode_off": [], "prefill_on": [], "prefill_off": []}
    for i in range(2 * args.rounds):
        # Who comes second finds another machine: the order changes.
        for name, n in (("on", on), ("off", off))[:: 1 - 2 * (i % 2)]:
            times = n.complete(prompt(512), 128)[0]
            rates["prefill_" + name].append(512 / times[0])
            rates["decode_" + name].append((len(times) - 2) / (times[-1] - times[1]))
    prefill_on, prefill_off = prompt(1500), prompt(1500)
    result = {name: statistics.median(v) for name, v in rates.items()}
    result["gap_exporting"] = statistics.median(gaps(on, 3, once(lambda: on.complete(prefill_on, 1))))
    result["gap_not_exporting"] = statistics.median(gaps(off, 3, once(lambda: off.complete(prefill_off, 1))))
    on.stop()
    off.stop()
    for kind in ("prefill", "decode"):
        result[kind + "_ratio"] = statistics.median(a / b for a, b in zip(rates[kind + "_on"], rates[kind + "_off"]))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=3969)
    parser.add_argument("--idle", action="store_true", help="only what keeping costs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = random.Random(7)

    def prompt(n):
        return [rng.randrange(300, 700) for _ in range(n)]

    r = {"tokens": args.tokens, "rounds": args.rounds}
    with tempfile.TemporaryDirectory(prefix="tandem-kv-") as work:
        if not args.idle:
            r |= reuse(args, work, prompt)
        r |= idle(args, work, prompt)
    if args.json:
        print(json.dumps(r, indent=2))
        return 0
    if not args.idle:
        print(f"{args.rounds} prompts of {args.tokens} tokens; medians\n")
        print(f"TTFT cold                      {r['ttft_cold'] * 1e3:9.1f} ms")
        print(f"TTFT from memory               {r['ttft_ram'] * 1e3:9.1f} ms   1/{r['ttft_cold'] / r['ttft_ram']:.0f} of cold, same text: {r['same_text_ram']}")
        print(f"TTFT from disk, after restart  {r['ttft_disk'] * 1e3:9.1f} ms   1/{r['ttft_cold'] / r['ttft_disk']:.0f} of cold, same text: {r['same_text_disk']}")
        print(f"mean gap of 200 tokens, quiet  {r['gap_quiet'] * 1e3:9.1f} ms         longest {r['gap_quiet_max'] * 1e3:.0f} ms")
        print(f"  beside one restore           {r['gap_one_import'] * 1e3:9.1f} ms   x{r['gap_one_import'] / r['gap_quiet']:.2f}, longest {r['gap_one_import_max'] * 1e3:.0f} ms")
        print(f"  beside restores all the time {r['gap_importing'] * 1e3:9.1f} ms   x{r['gap_importing'] / r['gap_quiet']:.2f}, longest {r['gap_importing_max'] * 1e3:.0f} ms")
    print(f"median gap beside a prefill, blocks exported / nothing kept: {r['gap_exporting'] * 1e3:.1f} / {r['gap_not_exporting'] * 1e3:.1f} ms   x{r['gap_exporting'] / r['gap_not_exporting']:.2f}")
    print(f"prefill, kept / nothing kept:  {r['prefill_on']:.1f} / {r['prefill_off']:.1f} tokens/s   {r['prefill_ratio']:.3f}")
    print(f"decode, kept / nothing kept:   {r['decode_on']:.1f} / {r['decode_off']:.1f} tokens/s   {r['decode_ratio']:.3f}")
    return 0 if r.get("same_text_ram", True) and r.get("same_text_disk", True) else 1


def once(run):
    """Calls run the first time, and None afterwards."""
    state = []

    def call():
        if state:
            return None
        state.append(True)
        return run()

    return call


if __name__ == "__main__":
    sys.exit(main())
