#!/usr/bin/env bash
# Prints the directory for temporary files of the tests: one in memory if there is much of it, because
# most tests commit to a file many times and would wait for the disk, else that of the system. PostgreSQL,
# whose databases of a whole run are large and need not be durable, is not there.
set -euo pipefail
memory=/dev/shm
needed_kb=$((2 * 1024 * 1024))
fallback=${TMPDIR:-/tmp}

free_kb() { df --output=avail "$1" 2>/dev/null | tail -n 1; }
available_kb() { awk '/^MemAvailable:/ { print $2 }' /proc/meminfo; }
runs_programs() {
  local probe
  probe=$(mktemp "$memory/probe-XXXXXX")
  printf '#!/bin/sh\n' >"$probe"
  chmod +x "$probe"
  local works=0
  "$probe" 2>/dev/null || works=1
  rm -f "$probe"
  return "$works"
}

if [ -w "$memory" ] && [ "$(free_kb $memory)" -gt $needed_kb ] \
  && [ "$(available_kb)" -gt $((2 * needed_kb)) ] && runs_programs; then
  mkdir -p "$memory/xmpp-agent-tests"
  echo "$memory/xmpp-agent-tests"
else
  echo "$fallback"
fi
