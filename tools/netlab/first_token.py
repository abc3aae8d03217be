"""Asks a node, with the request on standard input, and tells when its first token came,
and the gaps between all. SIGTERM ends it early.

    first_token.py HOST < request.json
"""
import json
import signal
import sys
import time
import urllib.request

over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))
request = urllib.request.Request(f"http://{sys.argv[1]}:9494/v1/completions", sys.stdin.read().encode(), {"Content-Type": "application/json", "Authorization": "Bearer netlab-key"})
start, times, text = time.perf_counter(), [], ""
with urllib.request.urlopen(request, timeout=600) as r:
    reason = r.headers["X-Tandem-Reason"]
    for line in r:
        if over:
            break
        if line.startswith(b"data: {"):
            times.append(time.perf_counter() - start)
            text += "".join(c["text"] for c in json.loads(line[6:])["choices"])
print(json.dumps({"ttft": times[0], "text": text, "reason": reason, "gaps": [b - a for a, b in zip(times, times[1:])]}))
