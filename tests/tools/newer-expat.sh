#!/bin/sh
# Fetches expat 2.6 or later for Debian's /usr/bin/python3 without installing it: the parser's tests
# must also run where expat defers half a token. Usage: tests/tools/newer-expat.sh [FOLDER]
# Afterwards: LD_LIBRARY_PATH=FOLDER /usr/bin/python3. Does nothing where that works already.
set -eu
suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
folder=${1:-"$(dirname "$0")/../../.venv/expat"}
works() {
  LD_LIBRARY_PATH=$folder /usr/bin/python3 -c '
import pyexpat, sys
sys.exit(pyexpat.version_info < (2, 6))'
}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
works && exit

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The mirror this machine uses already; the signature is what makes it Debian's.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
  sed -n 's,/*$,,; /\/debian$/ { p; q; }')
if [ -z "$mirror" ]; then
  echo "apt knows no Debian mirror here." >&2
  exit 1
fi
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/parts"
: > "$work/status"
echo "deb [signed-by=$keyring] $mirror $suite main" > "$work/sources.list"
# Its own lists, its own state: the machine's apt is only read.
set -- -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts="$work/parts" \
  -o Dir::State::Lists="$work/lists" -o Dir::State::Status="$work/status" \
  -o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" \
  -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false
apt-get "$@" update
(cd "$work" && apt-get "$@" download "libexpat1/$suite")
dpkg-deb -x "$work"/libexpat1_*.deb "$work/root"
find "$work/root" -name 'libexpat.so.1*' -exec cp -a {} "$folder" \;
works || { echo "expat of $suite does not work with /usr/bin/python3 here." >&2; exit 1; }
