#!/usr/bin/env bash
# The libraries from npm that programs in the documentation use. Installs what is missing.
# Usage: tests/tools/javascript.sh [FOLDER], a virtual environment; `.venv` by default.
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
environment=$(realpath "${1:-"$tools/../../.venv"}")
wanted="$tools/../../examples/callers/javascript/package.json"
folder="$environment/javascript/callers"

if cmp --silent "$wanted" "$folder/package.json" && [ -e "$folder/installed" ]; then
  exit 0
fi
. "$tools/node.sh"
mkdir -p "$folder"
rm -f "$folder/installed"
cp "$wanted" "$folder"
npm install --silent --no-audit --no-fund --prefix "$folder"
touch "$folder/installed"
