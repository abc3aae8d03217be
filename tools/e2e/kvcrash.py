"""Kept KV under hard ends: the node is killed while it writes, its files are damaged,
and it must start again every time and never answer otherwise than without kept KV.

    kvcrash.py --node bin/node [--kills 12] [--model tandem-tiny] [--seed N]
"""
import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

WORDS = "the river runs past an old mill where two riders rest and count the stars over quiet hills".split()


class Node:
    def __init__(self, args, folder, *flags):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.base, self.model = f"http://127.0.0.1:{port}", args.model
        self.log = open(folder + ".log", "a+b")
        self.process = subprocess.Popen(
            [args.node, "serve", "--data-dir", folder, "--listen", f"127.0.0.1:{port}", "--model", args.model, "--ctx", "1024", "--block", "16", *flags],
            stdout=subprocess.DEVNULL, stderr=self.log)
        deadline = time.monotonic() + 60
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                raise SystemExit(f"the node did not start: {self.log.read()[-2000:].decode(errors='replace')}")
            try:
                status = self.status()
                if status["node"]["ready"] and (status["models"][0]["kv_kept"] or "--kv-ram" in flags):
                    return
            except OSError:
                pass
            time.sleep(0.02)

    def status(self):
        with urllib.request.urlopen(self.base + "/admin/status", timeout=10) as r:
            return json.load(r)

    def answer(self, prompt):
        body = {"model": self.model, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 2}
        request = urllib.request.Request(self.base + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as r:
            got = json.load(r)
        return got["choices"][0]["text"], got["usage"]["prompt_tokens_details"]["cached_tokens"]

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(90)


def damage(rng, folder):
    """Flips a byte, or cuts the end off, in some of the files of kept KV."""
    files = [os.path.join(d, f) for d, _, names in os.walk(os.path.join(folder, "kv")) for f in names if f != "lock"]
    for path in rng.sample(files, min(3, len(files))):
        size = os.path.getsize(path)
        if size == 0:
            continue
        if rng.random() < 0.3:
            os.truncate(path, rng.randrange(size))
            continue
        with open(path, "r+b") as f:
            f.seek(rng.randrange(size))
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", required=True)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--model", default="tandem-tiny")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args()
    rng = random.Random(args.seed)
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory(prefix="tandem-crash-") as work:
        beginnings = [" ".join(rng.choices(WORDS, k=60)) for _ in range(6)]
        prompts = [b + " " + " ".join(rng.choices(WORDS, k=rng.randrange(1, 60))) for b in beginnings for _ in range(6)]
        cold = Node(args, work + "/cold", "--kv-ram", "0", "--parallel", "1")
        want = {p: cold.answer(p)[0] for p in prompts}
        cold.end(signal.SIGTERM)

        keep = ["--kv-ram", "8MiB", "--kv-disk", "64MiB", "--parallel", "1"]
        wrong, answers, restored, clean = [], 0, 0, 0
        for i in range(args.kills):
            node = Node(args, work + "/kept", *keep)
            until = time.monotonic() + rng.uniform(0.05, 1.5)
            stop = threading.Event()

            def load():
                nonlocal answers, restored
                order = random.Random(args.seed + i)
                while not stop.is_set():
                    prompt = order.choice(prompts)
                    try:
                        text, cached = node.answer(prompt)
                    except (OSError, urllib.error.URLError, ValueError, EOFError):
                        return  # killed
                    except Exception:
                        if stop.is_set():
                            return
                        raise
                    answers += 1
                    restored += cached
                    if text != want[prompt]:
                        wrong.append((prompt, text, want[prompt]))

            client = threading.Thread(target=load)
            client.start()
            while time.monotonic() < until and client.is_alive():
                time.sleep(0.01)
            stop.set()
            if i % 4 == 3:
                node.end(signal.SIGTERM)
                clean += 1
            else:
                node.end(signal.SIGKILL)
            client.join()
            if i % 3 == 2:
                damage(rng, work + "/kept")
        node = Node(args, work + "/kept", *keep)  # and it starts once more
        for prompt in prompts:
            text, cached = node.answer(prompt)
            answers, restored = answers + 1, restored + cached
            if text != want[prompt]:
                wrong.append((prompt, text, want[prompt]))
        kv = node.status()["kv"]
        node.end(signal.SIGTERM)
    print(f"{args.kills} ends ({args.kills - clean} killed, {clean} stopped), every third with damaged files: "
          f"{answers} answers, {restored} prompt tokens not computed, {len(wrong)} wrong answers, 0 failed starts; at the end {kv['disk']['blocks']} blocks on disk")
    for prompt, got, right in wrong[:3]:
        print(f"wrong: {prompt!r}: {got!r}, without kept KV {right!r}")
    if restored == 0:
        print("nothing was restored: the test shows nothing")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
