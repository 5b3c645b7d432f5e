#!/usr/bin/env bash
# What the tests need from Debian: the servers and clients they start, and a newer expat beside them.
# Installs what is missing when it may (as root, or by sudo without a password), else says what to do.
set -euo pipefail

packages=(prosody prosody-modules ejabberd profanity openssl python3 postgresql)
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = 'install ok installed' ] || missing+=("$package")
done

if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then
    as_root=()
  elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    echo "The tests need Debian's packages: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  # Debian starts a server when it installs it; the tests start their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod +x "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

"$(dirname "$0")/newer-expat.sh" "${1:-}"
