#!/bin/sh
# Builds skill.wasm with Debian's packages rustc, libstd-rust-dev-wasm32 and lld.
# Other toolchains call the target wasm32-wasip1: TARGET=wasm32-wasip1 RUSTC=rustc ./build.sh
set -eu
cd "$(dirname "$0")"
"${RUSTC:-/usr/bin/rustc}" --target "${TARGET:-wasm32-wasi}" --edition 2021 \
  -C opt-level=s -C strip=symbols -C panic=abort -C lto=fat -o skill.wasm main.rs
