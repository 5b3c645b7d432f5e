#!/usr/bin/env bash
# The MCP servers that the tests use: those in Python in an environment of their own, because their
# requirements are not ours, those in JavaScript by npm. Installs what is missing.
# Usage: tests/tools/mcp-servers.sh [FOLDER], a virtual environment; `.venv` by default.
set -euo pipefail
environment=$(realpath "${1:-"$(dirname "$0")/../../.venv"}")
folder="$environment/mcp-servers"
python=(mcp-server-git==2026.10.19 mcp-server-time==2026.10.19)
node=(server-everything@2026.8.31 server-filesystem@2026.8.31 server-memory@2026.8.31)

wanted="${python[*]} ${node[*]}"
if [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi
. "$(dirname "$0")/node.sh"
mkdir -p "$folder"
"$environment/bin/python" -m venv "$folder/python"
"$folder/python/bin/python" -m pip install --quiet "${python[@]}"
npm install --silent --no-audit --no-fund --prefix "$folder" "${node[@]/#/@modelcontextprotocol/}"
echo "$wanted" >"$folder/installed"
