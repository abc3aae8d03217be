"""Asks a node, with the request on standard input, and tells when its first token came.

    first_token.py HOST < request.json
"""
import json
import sys
import time
import urllib.request

request = urllib.request.Request(f"http://{sys.argv[1]}:9494/v1/completions", sys.stdin.read().encode(), {"Content-Type": "application/json", "Authorization": "Bearer netlab-key"})
start, first, text = time.perf_counter(), None, ""
with urllib.request.urlopen(request, timeout=600) as r:
    reason = r.headers["X-Tandem-Reason"]
    for line in r:
        if line.startswith(b"data: {"):
            first = first or time.perf_counter() - start
            text += "".join(c["text"] for c in json.loads(line[6:])["choices"])
print(json.dumps({"ttft": first, "text": text, "reason": reason}))
