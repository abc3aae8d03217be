"""Writes what a built program is made of, and under which licences.

    VERSION=v1 sbom.py PROGRAM OUT_DIR

From `go version -m PROGRAM` and the modules in Go's cache, which must hold them:

    OUT_DIR/sbom.cdx.json               CycloneDX 1.6
    OUT_DIR/THIRD-PARTY-LICENSES.txt    the texts

It fails if a module has no licence, or one that it does not know: somebody has to read
that before it is given to others.
"""
import base64
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The first that all of a licence's words are found in. Texts of several licences in one
# file are named by hand.
KNOWN = [
    ("Apache-2.0", ["Apache License", "Version 2.0"]),
    ("MPL-2.0", ["Mozilla Public License", "2.0"]),
    ("ISC", ["Permission to use, copy, modify, and/or distribute this software for any purpose"]),
    ("ISC", ["Permission to use, copy, modify, and distribute this software for any purpose"]),
    ("BSD-3-Clause", ["Redistribution and use in source and binary forms", "endorse or promote"]),
    ("BSD-2-Clause", ["Redistribution and use in source and binary forms"]),
    ("MIT", ["Permission is hereby granted, free of charge"]),
    ("CC0-1.0", ["CC0 1.0 Universal"]),
]
BY_HAND = {
    "github.com/klauspost/compress": "Apache-2.0 AND BSD-3-Clause AND MIT",
    "go.yaml.in/yaml/v3": "MIT AND Apache-2.0",
    "go.opentelemetry.io/otel": "Apache-2.0 AND BSD-3-Clause",
}


def go(*args):
    return subprocess.run(["go", *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def modules(program):
    """The Go version, the modules (path, version, hash) and the settings of the build."""
    lines = go("version", "-m", str(program)).splitlines()
    deps = [l.strip().split("\t") for l in lines[1:]]
    settings = dict(d[1].split("=", 1) for d in deps if d[0] == "build")
    return lines[0].rsplit(" ", 1)[1], [(d[1], d[2], d[3] if len(d) > 3 else "") for d in deps if d[0] in ("dep", "=>")], {k: v.strip('"') for k, v in settings.items()}


def escaped(path):
    """As the cache spells it: capitals are !small."""
    return re.sub("[A-Z]", lambda m: "!" + m[0].lower(), path)


def licence_of(name, folder):
    """The identifiers and texts of the licences of a folder."""
    texts = []
    for file in sorted(folder.iterdir()):
        if re.match(r"(?i)(licen[cs]e|copying|notice|unlicense)", file.name) and file.is_file():
            texts.append((file.name, file.read_text(errors="replace")))
    # A module in a folder of a larger one may leave the licence to that.
    if not [t for t in texts if not t[0].upper().startswith("NOTICE")]:
        sys.exit(f"{name}: no licence in {folder}")
    text = " ".join(re.sub(r"\s+", " ", t) for n, t in texts if not n.upper().startswith("NOTICE"))
    for licence, words in KNOWN:
        if all(w.lower() in text.lower() for w in words):
            return BY_HAND.get(name, licence), texts
    sys.exit(f"{name}: a licence in {folder} that is not known here")


def component(name, version, licence, purl=None, digest="", **more):
    c = {"type": "library", "name": name, "version": version, "bom-ref": purl or f"{name}@{version}", "licenses": [{"expression": licence}], **more}
    if purl:
        c["purl"] = purl
    if digest.startswith("h1:"):  # Go's hash of a module: SHA-256 over its files' hashes
        c["properties"] = [{"name": "go:h1", "value": base64.b64decode(digest[3:]).hex()}]
    return c


def main(program, out):
    cache = pathlib.Path(go("env", "GOMODCACHE").strip())
    goroot = pathlib.Path(go("env", "GOROOT").strip())
    compiler, deps, settings = modules(program)
    parts, texts = [], []
    for name, version, digest in deps:
        folder = cache / f"{escaped(name)}@{escaped(version)}"
        if not folder.is_dir():
            sys.exit(f"{folder}: not there; `go mod download` gets it")
        licence, found = licence_of(name, folder)
        parts.append(component(name, version, licence, f"pkg:golang/{name}@{version}", digest))
        texts.append((f"{name} {version}", licence, found))
        if name == "github.com/ollama/ollama":
            # Only these parts of the module are in the program, and are C++ of others.
            for inner, where in [("llama.cpp", "llama/llama.cpp"), ("ggml", "ml/backend/ggml/ggml")]:
                licence, found = licence_of(inner, folder / where)
                parts.append(component(inner, f"as in {name} {version}", licence, description="linked in through cgo; commit ec98e2002 of llama.cpp, December 2025"))
                texts.append((f"{inner}, as in {name} {version}", licence, found))
    licence, found = licence_of("go", goroot if (goroot / "LICENSE").exists() else cache / f"golang.org/toolchain@v0.0.1-{compiler}.linux-amd64")
    parts.append(component("stdlib", compiler.removeprefix("go"), licence, f"pkg:golang/stdlib@{compiler.removeprefix('go')}"))
    texts.append((f"Go standard library {compiler}", licence, found))
    page = (ROOT / "webui/dist/licenses.md").read_text()
    for name, version, licence in re.findall(r"^## (\S+) - (\S+) \(([^)]+)\)$", page, re.M):
        parts.append(component(name, version, licence.replace("(", "").replace(")", ""), f"pkg:npm/{name.replace('@', '%40')}@{version}"))
    texts.append(("the web page's libraries", "see each", [("licenses.md", page)]))

    # The program may be one for another processor: it is not asked.
    version = {"version": os.environ.get("VERSION") or subprocess.run(["git", "describe", "--tags", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip() or "dev",
               "os": settings.get("GOOS", ""), "arch": settings.get("GOARCH", ""), "cgo_cflags": settings.get("CGO_CFLAGS") or os.environ.get("CGO_CFLAGS", "")}  # with -trimpath the program does not tell
    # Reproducible: the same program gives the same file.
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True).stdout or 0)
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
           "serialNumber": "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, [d[2] for d in deps]]))),
           "metadata": {"timestamp": datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                        "component": {"type": "application", "name": "tandem", "version": version["version"], "bom-ref": "tandem",
                                      "properties": [{"name": "platform", "value": f"{version['os']}/{version['arch']}"}, {"name": "cgo_cflags", "value": version.get("cgo_cflags", "")}]}},
           "components": parts,
           "dependencies": [{"ref": "tandem", "dependsOn": [p["bom-ref"] for p in parts]}]}
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "sbom.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")
    with (out / "THIRD-PARTY-LICENSES.txt").open("w") as f:
        f.write("What is linked into tandem, and under which licences.\n")
        for name, licence, found in texts:
            for file, text in found:
                f.write(f"\n{'=' * 80}\n{name} ({licence}), {file}\n{'=' * 80}\n\n{text.strip()}\n")
    kinds = {}
    for p in parts:
        kinds[p["licenses"][0]["expression"]] = kinds.get(p["licenses"][0]["expression"], 0) + 1
    print(f"{len(parts)} components:", ", ".join(f"{n} {k}" for k, n in sorted(kinds.items(), key=lambda i: -i[1])))


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(sys.argv[1], sys.argv[2])
