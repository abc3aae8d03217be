#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct into the data folder unless there is a model already.
# Without network it says so and succeeds: the node then answers with the model
# that is built in.
#
#   default-model.sh NODE    NODE is the built program
set -euo pipefail
node=$1
here=$(cd "$(dirname "$0")" && pwd)
if "$node" models --quiet | grep -qv '^tandem-tiny'; then
  exit 0
fi
echo "getting SmolLM2-135M-Instruct (94 MiB)"
if model=$("$here/smollm2.sh" "$here/../build"); then
  "$node" pull "$model"
else
  echo "cannot get it: no network? The built-in model answers until \`tandem pull\` brings another."
fi
