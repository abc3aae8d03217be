"""Runs the shell commands of the README and of docs/ against a running node.

    readme.py BASE_URL MODEL NODE DATA_DIR

Every ```sh block is run by bash, with the addresses of the text replaced by the
node's, and data folders in /tmp by some of this run. A line above it may change that:

    <!-- not run: REASON -->
    <!-- run in the background until the page ends -->   a node; the next block waits until it is ready
    <!-- until it prints: TEXT -->                       it is run again, for a minute at most
    <!-- may fail -->                                    its status says something about this machine

The last line is "N passed, N failed, N skipped".
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

BASE, MODEL, NODE, DATA = sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3], sys.argv[4]
ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- (?P<note>not run: .+?|run in the background until the page ends|until it prints: .+?|may fail) -->\n)?```sh\n(?P<code>.*?)```", re.S)
HOST = BASE.removeprefix("http://")
ENV = {**os.environ, "NODE_DATA_DIR": DATA, "NODE_LISTEN": HOST, "OLLAMA_HOST": BASE, "PATH": f"{pathlib.Path(NODE).parent}:{os.environ['PATH']}"}
BASH = ["bash", "-euo", "pipefail", "-c"]


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def here(code, work):
    """The code with the addresses and folders of this run."""
    code = code.replace("http://127.0.0.1:9494", BASE).replace("127.0.0.1:9494", HOST).replace("bin/node", NODE)
    return re.sub(r"/tmp/(?=n\d)", f"{work}/", code)


def run(code, work):
    return subprocess.run([*BASH, here(code, work)], cwd=ROOT, env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def run_until(code, work, text):
    """Runs the code until it prints a text, as a person does who waits for it."""
    end = time.monotonic() + 60
    while True:
        r = run(code, work)
        if text in r.stdout or time.monotonic() > end:
            if text not in r.stdout:
                r.returncode = r.returncode or 1
            return r
        time.sleep(0.2)


class Background:
    """A node that a page starts."""

    def __init__(self, code, work):
        self.log = tempfile.TemporaryFile("w+")
        # Settings of the node that runs the other blocks must not reach this one.
        env = {k: v for k, v in ENV.items() if not k.startswith("NODE_")}
        self.process = subprocess.Popen([*BASH, here(code, work)], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        self.ready = "http://" + re.search(r"--listen (\S+)", code)[1] + "/readyz"

    def wait(self):
        """Returns what went wrong until it was ready."""
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.ready, timeout=5).close()
                return ""
            except OSError:
                time.sleep(0.1)
        self.log.seek(0)
        return f"{self.ready} did not answer; the node said:\n{self.log.read()[-2000:]}"

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def run_page(page, result):
    work = tempfile.mkdtemp()
    nodes = []
    try:
        for m in BLOCK.finditer(page.read_text()):
            run_block(page.relative_to(ROOT), m["note"] or "", m["code"], work, nodes, result)
    finally:
        for n in reversed(nodes):
            n.end()
        shutil.rmtree(work)


def run_block(page, note, code, work, nodes, result):
    first = code.strip().splitlines()[0]
    if why := re.match("not run: (.+)", note):
        result["skipped"] += 1
        print(f"skip {page}: {first} ({why[1]})")
        return
    output = ""
    try:
        if note.startswith("run in the background"):
            nodes.append(Background(code, work))
            wrong = nodes[-1].wait()
        else:
            until = re.match("until it prints: (.+)", note)
            r = run_until(code, work, until[1]) if until else run(code, work)
            failed = r.returncode and (note != "may fail" or r.returncode > 1)
            wrong = f"exit status {r.returncode}" if failed else '"error"' if re.search(r'"error":(?! *null)', r.stdout) else ""
            output = r.stdout + r.stderr
    except subprocess.TimeoutExpired as e:
        wrong, output = "no end after 300 s", str(e.stdout)
    result["failed" if wrong else "passed"] += 1
    if wrong:
        print(f"FAIL {page}: {wrong}\n{code}{output[-2000:]}")
    else:
        print(f"ok   {page}: {first}")


def main():
    result = {"passed": 0, "failed": 0, "skipped": 0}
    for page in pages():
        run_page(page, result)
    print(", ".join(f"{n} {what}" for what, n in result.items()))
    return 1 if result["failed"] or not result["passed"] else 0


sys.exit(main())
