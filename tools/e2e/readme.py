"""Runs the shell commands of the README and of docs/ against a running node.

    readme.py BASE_URL MODEL NODE DATA_DIR

Every ```sh block is run by bash, with the addresses of the text replaced by the
node's. A block is left out only if the line above it says why:
<!-- not run: REASON -->. The last line is "N passed, N failed, N skipped".
"""
import os
import pathlib
import re
import subprocess
import sys

BASE, MODEL, NODE, DATA = sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3], sys.argv[4]
ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- not run: (?P<why>.+?) -->\n)?```sh\n(?P<code>.*?)```", re.S)


def blocks():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for m in BLOCK.finditer(page.read_text()):
            yield page.relative_to(ROOT), m["why"], m["code"]


def run(code):
    host = BASE.removeprefix("http://")
    code = code.replace("http://127.0.0.1:9494", BASE).replace("127.0.0.1:9494", host)
    env = {**os.environ, "NODE_DATA_DIR": DATA, "NODE_LISTEN": host, "OLLAMA_HOST": BASE, "PATH": f"{pathlib.Path(NODE).parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def main():
    passed = failed = skipped = 0
    for page, why, code in blocks():
        first = code.strip().splitlines()[0]
        if why:
            skipped += 1
            print(f"skip {page}: {first} ({why})")
            continue
        try:
            r = run(code)
            wrong = f"exit status {r.returncode}" if r.returncode else '"error"' if re.search(r'"error":(?! *null)', r.stdout) else ""
            output = r.stdout + r.stderr
        except subprocess.TimeoutExpired as e:
            wrong, output = "no end after 300 s", str(e.stdout)
        if wrong:
            failed += 1
            print(f"FAIL {page}: {wrong}\n{code}{output[-2000:]}")
        else:
            passed += 1
            print(f"ok   {page}: {first}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


sys.exit(main())
