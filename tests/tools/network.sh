#!/usr/bin/env bash
# Runs a command in a network of its own: a loopback interface, and no other. Names are resolved by
# 127.0.0.1, where the command starts a DNS server. Needs root, or user namespaces.
# Usage: tests/tools/network.sh COMMAND [ARGUMENT]...
set -euo pipefail
here=$(realpath "$(dirname "$0")")
as_root=()
[ "$(id -u)" = 0 ] || as_root=(--user --map-root-user)
exec unshare "${as_root[@]}" --net --mount -- bash -euc '
  ip link set lo up
  # A rule before that of the local addresses can drop packets to them.
  ip rule add pref 2 lookup local
  ip rule del pref 0
  mount --bind "$0" /etc/resolv.conf
  exec env IN_NETWORK=1 "$@"
' "$here/resolv.conf" "$@"
