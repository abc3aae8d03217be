"""A cluster under churn: nodes are killed, frozen, drained, restarted and cut off while
clients stream, and no answer may be lost, hang, or differ from that of a quiet node.

    churn.py --node bin/node [--minutes 2] [--clients 16] [--nodes 4] [--model tandem-tiny] [--seed N]

Nodes listen on 127.0.0.1, 127.0.0.2, ... Clients stream through the first one, which
is spared: a stream cannot outlive the node that holds its connection. With --netns each
node has a network namespace of its own, and its cable is pulled, too; run that as
`unshare -n -m python3 churn.py --netns ...`, so that nothing of it stays.
"""
import argparse
import collections
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

WORDS = "the river runs past an old mill where two riders rest and count the stars over quiet hills".split()
KEY = "the-key-of-the-churn-test"
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
LIMIT = 120  # seconds that an answer may take: far more than any does


class Node:
    def __init__(self, args, work, number, port):
        self.args, self.number, self.port = args, number, port
        self.host = f"10.77.0.{number}" if args.netns else f"127.0.0.{number}"
        self.folder, self.base = f"{work}/n{number}", f"http://{self.host}:{port}"
        self.log = open(self.folder + ".log", "ab")
        self.process = None

    def start(self):
        command = [self.args.node, "serve", "--name", f"n{self.number}", "--data-dir", self.folder, "--secret", "the secret of the churn test",
                   "--listen", f"{self.host}:{self.port}", "--gossip", f"{self.host}:{self.port + 1}", "--peer", f"{self.host}:{self.port + 2}",
                   "--model", self.args.model, "--ctx", "1024", "--kv-ram", "64MiB", "--kv-disk", "64MiB", "--threads", "1", "--parallel", "8", "--api-key", KEY, *self.args.flags]
        if self.number > 1:
            command += ["--join", f"{self.host.rsplit('.', 1)[0]}.1:{self.port + 1}"]
        if self.args.netns:
            command = ["ip", "netns", "exec", f"n{self.number}", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)

    def get(self, path):
        with urllib.request.urlopen(urllib.request.Request(self.base + path, headers=HEADERS), timeout=5) as r:
            return json.load(r)

    def post(self, path, body):
        with urllib.request.urlopen(urllib.request.Request(self.base + path, json.dumps(body).encode(), HEADERS), timeout=5) as r:
            return json.load(r)

    def wait(self, what, holds, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                if holds(self.get("/admin/status")):
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                raise SystemExit(f"n{self.number} waited {seconds} s: {what}\n{open(self.folder + '.log').read()[-3000:]}")
            time.sleep(0.1)

    def signal(self, how):
        self.process.send_signal(how)

    def end(self, how):
        self.signal(how)
        self.process.wait(90)


def stream(base, model, prompt, tokens, note):
    """One streamed answer: its text, whole or an error; note is told the gaps."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(base + "/v1/completions", json.dumps(body).encode(), HEADERS)
    text, ids, last, done = "", set(), time.monotonic(), False
    with urllib.request.urlopen(request, timeout=LIMIT) as r:
        for line in r:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            ids.add(event["id"])
            now = time.monotonic()
            note(now - last)
            last = now
            text += "".join(c["text"] for c in event["choices"])
    if not done or len(ids) != 1:
        raise RuntimeError(f"the stream ended without its end, or had {len(ids)} ids")
    return text


class Clients:
    """Threads that stream until they are told to stop."""

    def __init__(self, args, base):
        self.args, self.base, self.over, self.lock = args, base, threading.Event(), threading.Lock()
        self.answers, self.lost, self.wrong, self.gap = 0, [], [], 0.0
        self.prompts = [" ".join(random.Random(i).choices(WORDS, k=12 + i % 60)) for i in range(24)]
        self.right, self.running = {}, {}
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(args.clients)]

    def learn(self):
        for i, prompt in enumerate(self.prompts):
            self.right[i] = stream(self.base, self.args.model, prompt, self.args.tokens, lambda gap: None)

    def note(self, gap):
        with self.lock:
            self.gap = max(self.gap, gap)

    def run(self, number):
        rng = random.Random(number)
        while not self.over.is_set():
            i = rng.randrange(len(self.prompts))
            with self.lock:
                self.running[number] = time.monotonic()
            try:
                text = stream(self.base, self.args.model, self.prompts[i], self.args.tokens, self.note)
                with self.lock:
                    self.answers += 1
                    if text != self.right[i]:
                        self.wrong.append((i, text))
            except Exception as e:  # whatever it was, an answer was lost
                with self.lock:
                    self.lost.append(repr(e)[:300])
            with self.lock:
                self.running.pop(number, None)

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join(LIMIT)
        return sum(t.is_alive() for t in self.threads)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def lay_cables(nodes):
    """A namespace for each node, all on one bridge here."""
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    ip("link", "set", "lo", "up")
    ip("link", "add", "bridge", "type", "bridge")
    ip("addr", "add", "10.77.0.254/24", "dev", "bridge")
    ip("link", "set", "bridge", "up")
    for n in nodes:
        name = f"n{n.number}"
        ip("netns", "add", name)
        ip("link", "add", "to-" + name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", "to-" + name, "master", "bridge", "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", n.host + "/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            ip("netns", "exec", name, "ip", *words)


def fault(rng, nodes, counts):
    """One random fault to one of the nodes but the first, and its end."""
    kinds = ["kill", "freeze", "drain", "restart", "leader"] + ["cable"] * nodes[0].args.netns
    kind, node = rng.choice(kinds), rng.choice(nodes[1:])
    if kind == "leader":
        leader = nodes[0].get("/admin/status")["cluster"]["leader"]
        node = next((n for n in nodes[1:] if n.id == leader), node)
    counts[kind] += 1
    if kind in ("kill", "leader"):
        node.end(signal.SIGKILL)
        time.sleep(rng.uniform(0, 4))
        node.start()
    elif kind == "restart":
        node.end(signal.SIGTERM)
        node.start()
    elif kind == "freeze":
        node.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 8))
        node.signal(signal.SIGCONT)
    elif kind == "drain":
        node.post("/admin/cluster/drain", {"on": True})
        time.sleep(rng.uniform(0.5, 4))
        node.post("/admin/cluster/drain", {"on": False})
    elif kind == "cable":
        ip("link", "set", f"to-n{node.number}", "down")
        time.sleep(rng.uniform(1, 10))
        ip("link", "set", f"to-n{node.number}", "up")
    node.wait("it is ready after " + kind, lambda s: s["node"]["ready"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", required=True)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=80)
    parser.add_argument("--model", default="tandem-tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--netns", action="store_true")
    parser.add_argument("--keep-logs", metavar="DIR")
    parser.set_defaults(flags=[])
    args = parser.parse_args()
    args.node = os.path.abspath(args.node)
    rng, counts = random.Random(args.seed), collections.Counter()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="tandem-churn-") as work:
        nodes = [Node(args, work, i + 1, port) for i in range(args.nodes)]
        if args.netns:
            lay_cables(nodes)
        try:
            nodes[0].start()
            nodes[0].wait("it is ready", lambda s: s["node"]["ready"])
            clients = Clients(args, nodes[0].base)
            clients.learn()
            for n in nodes[1:]:
                n.start()
            for n in nodes:
                n.wait("all are there", lambda s: s["node"]["ready"] and s["cluster"]["quorum"] and len(s["cluster"]["members"]) == args.nodes)
                n.id = n.get("/admin/status")["node"]["id"]
            for t in clients.threads:
                t.start()
            end = time.monotonic() + 60 * args.minutes
            while time.monotonic() < end:
                time.sleep(rng.uniform(0, 3))
                fault(rng, nodes, counts)
            hung = clients.stop()
            moved = open(nodes[0].folder + ".log").read().count("msg=request_moved")
        finally:
            for n in nodes:
                if n.process and n.process.poll() is None:
                    n.signal(signal.SIGCONT)
                    n.end(signal.SIGKILL)
            if args.keep_logs:
                for n in nodes:
                    shutil.copy(n.folder + ".log", args.keep_logs)
        for what in ("lost", "wrong"):
            for item in getattr(clients, what)[:5]:
                print(f"{what}: {item}")
        faults = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
        print(f"{args.nodes} nodes, {args.clients} clients, {args.minutes:g} min: {clients.answers} answers whole and equal, {moved} moved to another node; "
              f"{hung} hung, {len(clients.lost)} lost, {len(clients.wrong)} wrong; longest gap {clients.gap:.1f} s; faults: {faults}")
        return 1 if hung or clients.lost or clients.wrong or not clients.answers else 0


if __name__ == "__main__":
    sys.exit(main())
