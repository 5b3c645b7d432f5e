#!/bin/sh
# Builds skill.wasm with Debian's packages clang, lld, wasi-libc and libclang-rt-dev-wasm32.
set -eu
cd "$(dirname "$0")"
"${CC:-clang}" --target=wasm32-wasi -std=c99 -Wall -Wextra -Os -s -o skill.wasm main.c
