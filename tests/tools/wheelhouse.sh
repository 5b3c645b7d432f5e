#!/usr/bin/env bash
# The wheels of what the documented installations need, so that tests install the package as people do
# and ask no registry. Downloads what is missing.
# Usage: tests/tools/wheelhouse.sh [FOLDER], a virtual environment; `.venv` by default.
set -euo pipefail
project=$(realpath "$(dirname "$0")/../..")
environment=$(realpath "${1:-"$project/.venv"}")
folder="$environment/wheelhouse"

wanted=$(sha256sum "$project/pyproject.toml")
if [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi
rm -rf "$folder"
"$environment/bin/python" -m pip wheel --quiet --wheel-dir "$folder" "$project[conformance-client]" \
  "setuptools>=77"  # builds it
rm -rf "$project/build"
rm "$folder"/xmpp_agent_component-*.whl  # each test builds its own
echo "$wanted" >"$folder/installed"
