"""What moving KV is worth on wires of some speeds, on this machine: two nodes, each in a
network namespace, with a cable whose rate is limited.

    unshare -n -m python3 tools/netlab/netlab.py --node bin/node --model FILE [--mbit 1000,2500,10000] [--tokens 1985] [--rounds 1] [--prefill fast,slow]

For each rate: the goodput of iperf3 (if it is installed) and of both ways for KV, then
the time to the first token of a cold prompt in every way in which a node can get the
prompt's KV, and in the one that it chooses by itself, and the time between the tokens of
another answer while such prompts arrive there. Beside a fast prefill node the node has one
thread and the other all of them; beside a slow one it is the other way round. rate 0 is no
limit.
"""
import argparse
import http.client
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

SECRET = "the secret of the network lab"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def lay_cable():
    """Namespaces a and b and a cable between them."""
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    for name in "ab":
        ip("netns", "add", name)
    ip("link", "add", "eth0", "netns", "a", "type", "veth", "peer", "name", "eth0", "netns", "b")
    for name, host in (("a", "10.78.0.1"), ("b", "10.78.0.2")):
        for words in (["link", "set", "lo", "up"], ["addr", "add", host + "/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            ip("netns", "exec", name, "ip", *words)


def limit(mbit):
    """Sets the rate of both ends. A burst below 256 kB makes tbf cut large packets."""
    for name in "ab":
        inside = ["ip", "netns", "exec", name, "tc", "qdisc"]
        subprocess.run([*inside, "del", "dev", "eth0", "root"], stderr=subprocess.DEVNULL)
        if mbit:
            subprocess.run([*inside, "add", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit", "burst", "512kb", "limit", "1500000"], check=True)


def iperf():
    """Goodput of TCP from b to a in bytes/s, or None."""
    if not shutil.which("iperf3"):
        return None
    server = subprocess.Popen(["ip", "netns", "exec", "a", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    out = subprocess.run(["ip", "netns", "exec", "b", "iperf3", "-c", "10.78.0.1", "-t", "3", "-J"], capture_output=True, text=True)
    server.wait(20)
    return json.loads(out.stdout)["end"]["sum_received"]["bits_per_second"] / 8


class Node:
    def __init__(self, args, work, name, host, *flags):
        self.args, self.name, self.host, self.flags = args, name, host, flags
        self.folder = f"{work}/{name}"
        self.log = open(self.folder + ".log", "ab")
        self.process = None

    def start(self, *flags):
        command = ["ip", "netns", "exec", self.name, self.args.node, "serve", "--name", self.name, "--data-dir", self.folder, "--secret", SECRET, "--listen", f"{self.host}:9494",
                   "--gossip", f"{self.host}:9495", "--peer", f"{self.host}:9496", "--model", self.args.model, "--ctx", "4608", "--parallel", "2", "--api-key", "netlab-key",
                   "--kv-disk", "0", "--kv-ram", "512MiB", "--self-bench", "off", *self.flags, *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def curl(self, path, *more):
        out = subprocess.run(["ip", "netns", "exec", self.name, "curl", "-sS", "-m", "10", "-H", "Authorization: Bearer netlab-key", f"http://{self.host}:9494{path}", *more],
                             capture_output=True, text=True)
        return json.loads(out.stdout) if out.stdout else {}

    def until(self, what, holds, seconds=90):
        end = time.monotonic() + seconds
        while True:
            try:
                status = self.curl("/admin/status")
                if status and holds(status):
                    return status
            except (ValueError, KeyError, IndexError):
                pass
            if time.monotonic() > end:
                raise SystemExit(f"{self.name} waited {seconds} s: {what}\n{open(self.folder + '.log').read()[-2000:]}")
            time.sleep(0.1)

    def ttft(self, prompt, tokens=4):
        """Time to the first token, the text, and how the KV came."""
        body = {"model": os.path.basename(self.args.model).removesuffix(".gguf"), "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        script = os.path.join(os.path.dirname(__file__), "first_token.py")
        out = subprocess.run(["ip", "netns", "exec", self.name, "python3", script, self.host], input=json.dumps(body), capture_output=True, text=True, check=True)
        return json.loads(out.stdout)

    def beside(self, prompt, work):
        """Mean and longest gap between the tokens of an answer here while work runs."""
        body = {"model": os.path.basename(self.args.model).removesuffix(".gguf"), "prompt": prompt, "max_tokens": 4000, "temperature": 0, "ignore_eos": True, "stream": True}
        script = os.path.join(os.path.dirname(__file__), "first_token.py")
        stream = subprocess.Popen(["ip", "netns", "exec", self.name, "python3", script, self.host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stream.stdin.write(json.dumps(body))
        stream.stdin.close()
        self.until("the answer has begun", lambda s: s["requests"]["running"] > 0)
        time.sleep(0.5)
        work()
        stream.send_signal(signal.SIGTERM)
        gaps = json.loads(stream.stdout.read())["gaps"][4:]
        stream.wait(20)
        return statistics.mean(gaps), max(gaps)

    def last(self, event):
        """The fields of the last event of a kind in the log."""
        lines = [line for line in open(self.folder + ".log") if f"msg={event} " in line]
        return dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', lines[-1])) if lines else {}


def measure(args, work, mbit, prefill):
    limit(mbit)
    row = {"mbit": mbit, "prefill": prefill, "iperf": iperf()}
    rng = random.Random(args.seed)
    prompt = lambda: [rng.randrange(300, 700) for _ in range(args.tokens)]
    # b computes for others and answers nothing itself.
    b = Node(args, work, "b", "10.78.0.2", "--role", "prefill", "--threads", "0" if prefill == "fast" else "1")
    a = Node(args, work, "a", "10.78.0.1", "--threads", "1" if prefill == "fast" else "0", "--join", "10.78.0.2", "--log-level", "debug")
    prompts, texts = [], []
    try:
        b.start()
        b.until("it is ready", lambda s: s["node"]["ready"])
        for way in ("local", "remote", "fetched", "auto"):
            a.start("--disagg", {"local": "never", "remote": "always", "fetched": "never", "auto": "auto"}[way])
            status = a.until("both are there and the wire is measured", lambda s: s["node"]["ready"] and s["models"][0]["kv_kept"] and
                             len([m for m in s["cluster"]["members"] if m["state"] == "ready" and m["models"]]) == 2 and
                             len([k for k in s["cluster"]["links"][0].get("kv", []) if k["goodput"]]) == 2)
            row["ways"] = {k["transport"]: k["goodput"] for k in status["cluster"]["links"][0]["kv"]}
            for n in (b, a):  # rates are known afterwards, also of long prompts
                n.ttft(prompt()[: args.tokens // 2], 12)
            if way != "fetched":  # else those that b has computed for the node that was here before
                prompts = [prompt() for _ in range(args.rounds)]
            times = []
            for i, p in enumerate(prompts):
                got = a.ttft(p)
                times.append(got["ttft"])
                if way == "remote":
                    texts[i:] = [got["text"]]
                if way == "fetched" and got["text"] != texts[i]:
                    raise SystemExit(f"{got['text']!r} with fetched KV, {texts[i]!r} before")
                row.setdefault("reasons", {})[way] = got["reason"]
                moved = a.last("kv_moved")
            row[way] = statistics.median(times)
            if way in ("local", "remote"):
                row["gaps_" + way] = a.beside(prompt()[:64], lambda: [a.ttft(prompt()) for _ in range(2)])
            if way == "auto":
                row["choice"] = "remote" if re.search(r"computes [\d,]+ tokens", got["reason"]) else "local"
            if way in ("remote", "fetched"):
                row[way + "_moved"] = moved.get("outcome", "none") + " " + moved.get("transport", "")
            a.stop()
    finally:
        a.stop()
        b.stop()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--mbit", default="1000,2500,10000")
    parser.add_argument("--tokens", type=int, default=1985)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prefill", default="fast,slow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.node, args.model = os.path.abspath(args.node), os.path.abspath(args.model)
    lay_cable()
    rows = []
    with tempfile.TemporaryDirectory(prefix="tandem-netlab-") as work:
        for mbit in map(int, args.mbit.split(",")):
            for prefill in args.prefill.split(","):
                rows.append(measure(args, tempfile.mkdtemp(dir=work), mbit, prefill))
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    mb = lambda v: f"{v / 1e6:.0f}" if v else "-"
    print(f"{os.path.basename(args.model)}, {args.tokens} tokens, median of {args.rounds}; MB/s and s to the first token")
    print(f"{'Mbit/s':>7} {'prefill':>7} {'iperf3':>7} {'quic':>6} {'tcp':>6} | {'local':>7} {'remote':>7} {'fetched':>8} | auto")
    for r in rows:
        best = min(r["local"], r["remote"])
        print(f"{r['mbit']:>7} {r['prefill']:>7} {mb(r['iperf']):>7} {mb(r['ways'].get('quic')):>6} {mb(r['ways'].get('tcp')):>6} | {r['local']:7.2f} {r['remote']:7.2f} {r['fetched']:8.2f} | "
              f"{r['auto']:.2f} ({r['choice']}, {r['auto'] / best:.2f} of the better)")
    print("between tokens of another answer while two such prompts arrive, mean and longest, ms: all here; prompts computed there")
    for r in rows:
        (mean, longest), (there, there_longest) = r["gaps_local"], r["gaps_remote"]
        print(f"{r['mbit']:>7} {r['prefill']:>7} {mean * 1e3:7.1f} {longest * 1e3:7.0f} ; {there * 1e3:7.1f} {there_longest * 1e3:7.0f}")
    for r in rows:
        print(f"{r['mbit']} Mbit/s, {r['prefill']} prefill node, auto: {r['reasons']['auto']}")


if __name__ == "__main__":
    main()
