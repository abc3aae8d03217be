#!/usr/bin/env bash
# Runs a command with the tools that end-to-end tests need on the PATH, and gets
# those that are missing: the anthropic, openai and ollama SDKs in a virtual environment,
# the page's npm packages, Chromium from the distribution (as root only).
#
#   with-test-tools.sh COMMAND [ARGUMENT...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$root/build/venv

if ! "$venv/bin/python" -c 'import anthropic, openai, ollama' 2>/dev/null; then
  echo "making $venv with the anthropic, openai and ollama SDKs"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$root/tools/e2e/requirements.txt"
fi
if [ ! -d "$root/webui/node_modules" ]; then
  npm --prefix "$root/webui" ci --no-audit --no-fund --loglevel=error
fi
if ! command -v chromium >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Chromium"
    apt-get update -qq && apt-get install -y -qq chromium >/dev/null
  else
    echo "chromium is not installed and this is no root shell: install it, then run again" >&2
    exit 1
  fi
fi
export PATH=$venv/bin:$PATH
exec "$@"
