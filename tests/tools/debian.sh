#!/usr/bin/env bash
# What the tests need from Debian: the servers and clients they start, and a newer expat beside them.
# Installs what is missing when it may (as root, or by sudo without a password), else says what to do.
# PACKAGES names more packages.
# Usage: tests/tools/debian.sh [FOLDER], a virtual environment; `.venv` by default.
set -euo pipefail
environment=${1:-"$(dirname "$0")/../../.venv"}

packages=(prosody prosody-modules ejabberd profanity openssl iproute2 python3 postgresql)
read -r -a more <<<"${PACKAGES:-}"
packages+=("${more[@]}")
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = 'install ok installed' ] || missing+=("$package")
done

as_root=()
may_be_root=yes
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo -n)
  sudo -n true 2>/dev/null || may_be_root=no
fi

if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$may_be_root" = no ]; then
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

# The tests run the packaged configuration, which only root and Prosody may read.
mkdir -p "$environment/debian"
if [ "$may_be_root" = no ]; then
  if [ ! -e "$environment/debian/prosody.cfg.lua" ]; then
    echo "The tests run Prosody's configuration as Debian ships it, which only root may read:" >&2
    echo "  sudo cat /etc/prosody/prosody.cfg.lua > $environment/debian/prosody.cfg.lua" >&2
    exit 1
  fi
else
  "${as_root[@]}" cat /etc/prosody/prosody.cfg.lua >"$environment/debian/prosody.cfg.lua"
fi

"$(dirname "$0")/newer-expat.sh" "$environment/expat"
