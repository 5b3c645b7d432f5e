#!/bin/sh
# Builds skill.wasm (18 MB: CPython, its library and the script) with componentize-py 0.25 of PyPI,
# in about ten seconds. It is too large for this repository; the tests build it once.
set -eu
cd "$(dirname "$0")"
wit=$(mktemp -d)
trap 'rm -rf "$wit"' EXIT
cp world.wit "$wit"
mkdir -p "$wit/deps/skill"
cp ../../../protocol_schemas/skill.wit "$wit/deps/skill"
"${COMPONENTIZE:-componentize-py}" -d "$wit" -w statistics componentize --stub-wasi -p . app \
  -o "${OUTPUT:-skill.wasm}"
