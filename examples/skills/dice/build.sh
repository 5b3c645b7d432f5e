#!/bin/sh
# Builds skill.wasm (1.1 MB: QuickJS and the script) with componentize-qjs 0.4 of npm.
# componentize-js builds the same source with SpiderMonkey, to 12 MB.
set -eu
cd "$(dirname "$0")"
wit=$(mktemp -d)
trap 'rm -rf "$wit"' EXIT
cp world.wit "$wit"
mkdir -p "$wit/deps/skill"
cp ../../../protocol_schemas/skill.wit "$wit/deps/skill"
${COMPONENTIZE:-npx --yes componentize-qjs@0.4.5} --wit "$wit" --world dice --js main.js \
  --stub-wasi --sync --opt-size --output skill.wasm
