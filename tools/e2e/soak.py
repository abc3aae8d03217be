"""Soak test: clients that chat, cancel, stall and send rubbish against one node.

    soak.py --node bin/node [--minutes 10] [--clients 8] [--model FILE] [--base URL]

Starts the node (or uses --base), loads it for the time given, then checks that
the process lives, that no slot is held, and that goroutines, descriptors and
memory have not grown since the warm-up. Prints a line a sample and a verdict.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = "the river runs past an old mill where two riders rest and count the stars over the quiet hills".split()


class Load:
    """What the clients share."""

    def __init__(self, host, port, model, seed):
        self.host, self.port, self.model, self.seed = host, port, model, seed
        self.end, self.lock, self.counts, self.faults = threading.Event(), threading.Lock(), {}, []

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def client(self, number):
        rng = random.Random(f"{self.seed}-{number}")
        acts = [(self.chat, 40), (self.cancel, 25), (self.rubbish, 15), (self.stall, 5), (self.shared_prefix, 15)]
        while not self.end.is_set():
            act = rng.choices([a for a, _ in acts], [w for _, w in acts])[0]
            try:
                act(rng)
                self.count(act.__name__)
            except (OSError, http.client.HTTPException) as e:
                if not self.end.is_set():
                    self.fault(f"{act.__name__}: {e!r}")

    def open(self, body, path="/v1/chat/completions", rcvbuf=None):
        conn = http.client.HTTPConnection(self.host, self.port, timeout=120)
        if rcvbuf:
            conn.sock = socket.create_connection((self.host, self.port), timeout=120)
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        conn.request("POST", path, body if isinstance(body, (str, bytes)) else json.dumps(body), {"Content-Type": "application/json"})
        return conn, conn.getresponse()

    def body(self, rng, **more):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 120)))
        return {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": rng.randint(1, 48), "temperature": rng.choice([0, 0.7, 1.3]), "stream": True, **more}

    def finish(self, r, expected=(200, 429, 503)):
        data = r.read()
        if r.status not in expected:
            self.fault(f"status {r.status}: {data[:200]!r}")
        elif r.status == 200 and b"data: [DONE]" not in data:
            self.fault(f"a stream without [DONE]: {data[-200:]!r}")

    def chat(self, rng):
        conn, r = self.open(self.body(rng))
        self.finish(r)
        conn.close()

    def shared_prefix(self, rng):
        messages = [{"role": "system", "content": "You are brief. " * 20}, {"role": "user", "content": rng.choice(WORDS)}]
        conn, r = self.open(self.body(rng, messages=messages))
        self.finish(r)
        conn.close()

    def cancel(self, rng):
        conn, r = self.open(self.body(rng, max_tokens=4000, ignore_eos=True))
        r.read(rng.randint(1, 4000))
        conn.close()

    def rubbish(self, rng):
        bad = rng.choice(["{", "[]", '{"model":1}', json.dumps(self.body(rng, temperature=99)), json.dumps(self.body(rng, messages=[])), json.dumps(self.body(rng, n=10**9)),
                          json.dumps(self.body(rng, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}})), "\xff\xfe", "x" * 100000,
                          json.dumps(self.body(rng, model="../../etc/passwd")), json.dumps(self.body(rng, messages=[{"role": "user", "content": "w " * 60000}]))])
        conn, r = self.open(bad.encode("latin-1"))
        r.read()
        if not 400 <= r.status < 500:
            self.fault(f"rubbish got {r.status}: {bad[:80]!r}")
        conn.close()

    def stall(self, rng):
        conn, r = self.open(self.body(rng, max_tokens=4000, ignore_eos=True), rcvbuf=4096)
        self.end.wait(rng.uniform(1, 40))
        conn.close()


def sample(status, pid):
    s = status()
    rss = next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return {"goroutines": s["goroutines"], "fds": len(os.listdir(f"/proc/{pid}/fd")), "rss_mb": rss / 1024,
            "running": s["requests"]["running"], "queued": s["requests"]["queued"], "open_streams": s["open_streams"], "kv": s["kv"]["blocks_held"]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--node", default="bin/node")
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--seed", default=str(random.randrange(10**9)))
    p.add_argument("--model")
    a = p.parse_args()
    model = a.model or subprocess.run([ROOT / "tools/smollm2.sh", ROOT / "build"], check=True, capture_output=True, text=True).stdout.strip()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    work = tempfile.TemporaryDirectory()
    log = open(pathlib.Path(work.name) / "log", "w+")
    node = subprocess.Popen([a.node, "serve", "--data-dir", work.name + "/data", "--listen", f"127.0.0.1:{port}", "--gossip", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--model", model, "--ctx", "1024", "--kv-ram", "64MiB", "--kv-disk", "256MiB"],
                            stdout=log, stderr=log)
    load = Load("127.0.0.1", port, pathlib.Path(model).name.removesuffix(".gguf"), a.seed)

    def get(path):
        conn = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            conn.request("GET", path)
            r = conn.getresponse()
            return r.status, r.read()
        finally:
            conn.close()

    def status():
        return json.loads(get("/admin/status")[1])

    try:
        for _ in range(600):
            try:
                if get("/readyz")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        print(f"seed {a.seed}, {a.clients} clients, {a.minutes:g} minutes, ctx 1024, {load.model}", flush=True)
        threads = [threading.Thread(target=load.client, args=(i,), daemon=True) for i in range(a.clients)]
        for t in threads:
            t.start()
        start, samples = time.time(), []
        while time.time() - start < a.minutes * 60 and node.poll() is None:
            time.sleep(min(15, a.minutes * 6))
            s = sample(status, node.pid)
            samples.append(s)
            print(f"{time.time() - start:5.0f} s " + " ".join(f"{k}={v:.0f}" for k, v in s.items()) + f" done={sum(load.counts.values())} faults={len(load.faults)}", flush=True)
        load.end.set()
        for t in threads:
            t.join(60)
        deadline = time.time() + 40
        while time.time() < deadline and any(sample(status, node.pid)[k] for k in ("running", "queued", "open_streams")):
            time.sleep(0.5)
        time.sleep(5)
        last, warm = sample(status, node.pid), samples[len(samples) // 4]
        print("at rest: " + " ".join(f"{k}={v:.0f}" for k, v in last.items()))
        print("requests: " + " ".join(f"{k}={v}" for k, v in sorted(load.counts.items())))
        wrong = list(load.faults[:10])
        wrong += [f"{k} is {last[k]:.0f} at rest" for k in ("running", "queued", "open_streams", "kv") if last[k]]
        wrong += [f"goroutines grew to {last['goroutines']}" for _ in [0] if last["goroutines"] > warm["goroutines"] + 20]
        wrong += [f"descriptors grew to {last['fds']}" for _ in [0] if last["fds"] > warm["fds"] + 8]
        wrong += [f"memory grew from {warm['rss_mb']:.0f} to {last['rss_mb']:.0f} MB" for _ in [0] if last["rss_mb"] > warm["rss_mb"] * 1.05 + 16]
        wrong += ["the process ended"] if node.poll() is not None else []
    finally:
        node.terminate()
        node.wait(60)
        log.seek(0)
        text = log.read()
    wrong += [f"the log has {word}" for word in ("panic:", "fatal error:", "SIGSEGV", "GGML_ASSERT") if word in text]
    for w in wrong:
        print("WRONG:", w)
    if wrong:
        print(text[-4000:])
    print(f"{0 if wrong else 1} passed, {len(wrong)} failed")
    return 1 if wrong else 0


sys.exit(main())
