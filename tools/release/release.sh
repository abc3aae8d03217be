#!/usr/bin/env bash
# Builds what is given to others: one archive per processor with the program, its bill
# of materials and licences, shell completion, dashboard and alerts; and SHA256SUMS.
#
#   release.sh [--out DIR] [PROCESSOR...]     x86-64-v3 (default), x86-64-v2, x86-64-v4, arm64
#
# x86-64-v3 is any PC since about 2015 (AVX2). On one that is older the program ends with
# "Illegal instruction": x86-64-v2 is for that, several times slower. arm64 means
# ARMv8.2 with dot products and half precision: Raspberry Pi 5, Apple and Ampere, not the
# Pi 4. It is built here if this is arm64, or with aarch64-linux-gnu-g++ (Debian:
# g++-aarch64-linux-gnu). The same commit gives the same bytes with the same compilers.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
out=$root/build/release
processors=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$(realpath -m "$2"); shift 2 ;;
    x86-64-v[234] | arm64) processors+=("$1"); shift ;;
    *) echo "$1: allowed: --out DIR, x86-64-v2, x86-64-v3, x86-64-v4, arm64" >&2; exit 2 ;;
  esac
done
[ ${#processors[@]} -gt 0 ] || processors=(x86-64-v3)

VERSION=$(git describe --tags --always --dirty)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export VERSION SOURCE_DATE_EPOCH
export GOFLAGS=-buildvcs=false CGO_ENABLED=1 GOOS=linux
mkdir -p "$out"

build() { # PROCESSOR FOLDER
  local march=$1
  export GOARCH=amd64 CC=gcc CXX=g++
  if [ "$1" = arm64 ]; then
    march=armv8.2-a+dotprod+fp16 GOARCH=arm64
    if [ "$(uname -m)" != aarch64 ]; then
      CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++
      command -v $CXX >/dev/null || { echo "arm64: $CXX is not installed (Debian: g++-aarch64-linux-gnu)" >&2; exit 1; }
    fi
  fi
  export CGO_CFLAGS="-O3 -march=$march -U__AMX_INT8__ -Wno-stringop-overflow"
  export CGO_CXXFLAGS=$CGO_CFLAGS
  # RDMA is compiled in where the headers of libfabric are; the library is opened at run
  # time, if at all.
  local tags=
  [ ! -e /usr/include/rdma/fabric.h ] || tags=fabric
  go build -trimpath -tags "$tags" -ldflags "-s -w -X tandem/node.Version=$VERSION" -o "$2/tandem" .
}

for processor in "${processors[@]}"; do
  name=tandem-$VERSION-linux-$processor
  folder=$out/$name
  rm -rf "$folder"
  mkdir -p "$folder/completion"
  echo "== $name"
  build "$processor" "$folder"
  env -u GOOS -u GOARCH -u CC -u CXX python3 tools/release/sbom.py "$folder/tandem" "$folder"
  if "$folder/tandem" version >/dev/null 2>&1; then
    for shell in bash zsh fish; do
      "$folder/tandem" completion $shell >"$folder/completion/tandem.$shell"
    done
  else
    echo "this machine cannot run it: no files for completion; \`tandem completion SHELL\` prints them there"
    rmdir "$folder/completion"
  fi
  cp -r README.md CHANGELOG.md ship "$folder"
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$out" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
  rm -rf "$folder"
done
(cd "$out" && sha256sum tandem-"$VERSION"-*.tar.gz | tee SHA256SUMS)
