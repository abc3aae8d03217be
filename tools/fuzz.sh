#!/usr/bin/env bash
# Runs every fuzz target of the module for $1 (default 60s), one after another.
set -euo pipefail
time=${1:-60s}
failed=0
while read -r package target; do
  echo "== $package $target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5s "./${package#tandem/}" || failed=1
done < <(grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
  grep -ho '^func Fuzz[A-Za-z0-9_]*' "$file" | while read -r _ name; do echo "tandem/$(dirname "${file#./}") $name"; done
done)
exit $failed
