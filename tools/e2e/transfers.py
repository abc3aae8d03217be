"""KV moves between nodes that are killed, frozen and cut off, for clients that leave: no
answer may differ from that of a lone node, and nothing may stay behind.

    transfers.py --node bin/node [--transfers 500] [--seed N] [--netns] [--way shm|network|rdma:PROVIDER]

Three nodes with --disagg always: each prompt is computed on another node than its
answer, and its blocks are pulled. Every prompt is new. The first node is spared, as it
holds the clients' connections. With --netns as churn.py has it, cables are pulled, too,
and memory cannot be shared. --way says how blocks must come: the others are turned off.
With --disk (and --netns) kept KV lies on file systems that are too small for it, and bytes
of its files flip under the running nodes.
"""
import argparse
import collections
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import churn

TOKENS = 12


def prompts(n, seed):
    rng = random.Random(seed)
    return [" ".join(rng.choices(churn.WORDS, k=rng.randrange(220, 330))) for _ in range(n)]


def complete(base, args, prompt, leave_after=None):
    """One answer; None if the client left before it came."""
    host, port = base.removeprefix("http://").split(":")
    conn = http.client.HTTPConnection(host, int(port), timeout=churn.LIMIT)
    body = {"model": os.path.basename(args.model).removesuffix(".gguf"), "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    conn.request("POST", "/v1/completions", json.dumps(body), churn.HEADERS)
    if leave_after is not None:
        time.sleep(leave_after)
        conn.sock.shutdown(socket.SHUT_RDWR)
        conn.close()
        return None
    with conn.getresponse() as r:
        answer = json.load(r)
    conn.close()
    if r.status != 200:
        raise RuntimeError(f"{r.status} {answer}")
    return answer["choices"][0]["text"]


def moves(nodes):
    """How transfers ended, and what carried those that were complete, of all nodes, by their logs."""
    out, ways = collections.Counter(), collections.Counter()
    for n in nodes:
        for way, outcome in re.findall(r'msg=kv_moved .*?transport=(\w+|"") .*?outcome=(\w+)', open(n.folder + ".log").read()):
            out[outcome] += 1
            if outcome == "complete":
                ways[way] += 1
    return out, ways


def small_disk(node):
    """Kept KV of a node gets a third of the room that --kv-disk allows."""
    os.makedirs(node.folder + "/kv")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", node.folder + "/kv"], check=True)


def flip(rng, node):
    """Flips a bit in each of some files of kept KV."""
    files = [os.path.join(d, f) for d, _, names in os.walk(node.folder + "/kv") for f in names if f != "lock"]
    for path in rng.sample(files, min(3, len(files))):
        try:
            with open(path, "r+b") as f:
                size = f.seek(0, os.SEEK_END)
                if size == 0:
                    continue
                at = rng.randrange(size)
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1 << rng.randrange(8)]))
        except OSError:
            continue  # it is gone


def rest(nodes):
    """Waits until no node holds anything for a request."""
    for n in nodes:
        n.wait("nothing is held any more", lambda s: s["requests"]["running"] == 0 and s["requests"]["queued"] == 0 and s["reservations"] == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", required=True)
    parser.add_argument("--transfers", type=int, default=500)
    parser.add_argument("--model", default="tandem-tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--netns", action="store_true")
    parser.add_argument("--way", default="shm")
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--quiet", action="store_true", help="one client, which never leaves, and no faults: for models in which a batch changes near ties")
    parser.set_defaults(nodes=3)
    args = parser.parse_args()
    if args.netns and args.way == "shm":
        args.way = "network"
    way, _, provider = args.way.partition(":")
    args.flags = ["--disagg", "always", "--kv-type", args.kv_type, "--kv-shared", "auto" if way == "shm" else "off"]
    if way == "rdma":
        args.flags += ["--rdma", "require", "--rdma-provider", provider]
    args.node = os.path.abspath(args.node)
    rng, counts = random.Random(args.seed), collections.Counter()
    texts = prompts(args.transfers + 50, args.seed)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    wrong, lost, left, answered = [], [], 0, 0
    with tempfile.TemporaryDirectory(prefix="tandem-transfers-") as work:
        nodes = [churn.Node(args, work, i + 1, port) for i in range(args.nodes)]
        alone = churn.Node(args, work, 1, port)
        alone.folder += "-alone"
        if args.netns:
            churn.lay_cables(nodes)
        if args.disk:
            for n in nodes[1:]:
                small_disk(n)
        try:
            alone.start()
            alone.wait("it is ready", lambda s: s["node"]["ready"])
            right = [complete(alone.base, args, t) for t in texts]
            alone.end(signal.SIGTERM)
            for n in nodes:
                n.start()
            for n in nodes:
                n.wait("all are there", lambda s: s["node"]["ready"] and s["cluster"]["quorum"] and
                       sum(m["state"] == "ready" and len(m["models"]) > 0 for m in s["cluster"]["members"]) == args.nodes)
                n.id = n.get("/admin/status")["node"]["id"]
            for t in texts[-10:]:  # all connections are there
                complete(nodes[0].base, args, t)
            begin = nodes[0].get("/admin/status")
            todo, lock = iter(range(args.transfers)), threading.Lock()

            def client(number):
                nonlocal left, answered
                dice = random.Random(number)
                while True:
                    with lock:
                        i = next(todo, None)
                    if i is None:
                        return
                    try:
                        leave = dice.uniform(0, 0.15) if not args.quiet and dice.random() < 0.25 else None
                        text = complete(nodes[0].base, args, texts[i], leave)
                    except Exception as e:  # whatever it was, an answer was lost
                        with lock:
                            lost.append(repr(e)[:300])
                        continue
                    with lock:
                        left += text is None
                        answered += text is not None
                        if text is not None and text != right[i]:
                            wrong.append((i, text, right[i]))
                    time.sleep(dice.uniform(0, 0.5))

            threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(1 if args.quiet else 4)]
            for t in threads:
                t.start()
            while any(t.is_alive() for t in threads):
                time.sleep(rng.uniform(0, 1))
                if args.disk:
                    flip(rng, rng.choice(nodes[1:]))
                    counts["bits"] += 1
                if not args.quiet:
                    churn.fault(rng, nodes, counts)
            during, _ = moves(nodes)
            rest(nodes)
            time.sleep(6)  # marks on nodes that failed end by themselves
            for i in range(args.transfers, args.transfers + 40):
                if complete(nodes[0].base, args, texts[i]) != right[i]:
                    wrong.append((i, "afterwards", right[i]))
            after, ways = moves(nodes)
            after -= during
            rest(nodes)
            end = nodes[0].get("/admin/status")
        finally:
            for n in [*nodes, alone]:
                if n.process and n.process.poll() is None:
                    n.signal(signal.SIGCONT)
                    n.end(signal.SIGKILL)
            for n in nodes[1:] if args.disk else []:
                counts["disks full"] += open(n.folder + ".log").read().count("cannot be written to disk and stay in RAM only\" full=true") > 0
                subprocess.run(["umount", n.folder + "/kv"], check=True)
    for what, items in (("lost", lost), ("wrong", wrong)):
        for item in items[:5]:
            print(f"{what}: {item}")
    grown = end["goroutines"] - begin["goroutines"]
    show = lambda c: ", ".join(f"{n} {k}" for k, n in sorted(c.items())) or "none"
    print(f"{args.transfers} prompts, {answered} answered and equal but {len(wrong)}, {left} clients left, {len(lost)} lost; transfers under faults: {show(during)}; "
          f"40 prompts afterwards: {show(after)}; complete over {show(ways)}; goroutines {grown:+d}; faults: {show(counts)}")
    carried = ways[way] if way != "network" else ways["tcp"] + ways["quic"]
    ok = carried >= 36 and not wrong and not lost and after["complete"] >= 36 and sum(during.values()) > args.transfers / 2 and grown < 60
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
