"""Small modules and components for tests, in WebAssembly's text format."""

from __future__ import annotations

import wasmtime


def binary(text: str) -> bytes:
    return bytes(wasmtime.wat2wasm(text))


OUTCOME = (
    '(variant (case "text" string) (case "json" string) (case "refused" string)'
    ' (case "invalid-parameter" (tuple string string)))'
)
LOG = (
    '(instance (type $level (enum "debug" "info" "warning" "error"))'
    ' (export "level" (type $l (eq $level)))'
    ' (export "write" (func (param "level" $l) (param "text" string))))'
)


def command(
    body: str, *, imports: str = "", memory: int = 1, data: str = "", rest: str = ""
) -> bytes:
    """A command module whose `_start` is `body`. It can write text with `$say`."""
    return binary(f"""
    (module
      (import "wasi_snapshot_preview1" "fd_write"
        (func $fd_write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_read"
        (func $fd_read (param i32 i32 i32 i32) (result i32)))
      {imports}
      (memory (export "memory") {memory})
      {data}
      {rest}
      (func $say (param $fd i32) (param $at i32) (param $length i32)
        (i32.store (i32.const 0) (local.get $at))
        (i32.store (i32.const 4) (local.get $length))
        (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
      (func $start (export "_start") {body}))
    """)


def text(value: str, at: int = 1024) -> tuple[str, str]:
    """A data segment that holds a text, and the operands of `$say` for it."""
    encoded = value.encode()
    escaped = "".join(f"\\{byte:02x}" for byte in encoded)
    return (
        f'(data (i32.const {at}) "{escaped}")',
        f"(i32.const {at}) (i32.const {len(encoded)})",
    )


def saying(value: str) -> bytes:
    """A command module that writes a text to standard output."""
    data, operands = text(value)
    return command(f"(call $say (i32.const 1) {operands})", data=data)


ECHO = command("""
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (i32.const 61440))
    (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (call $say (i32.const 1) (i32.const 4096) (i32.load (i32.const 8)))
""")
"""Writes what it reads, up to 60 KiB."""


def component(
    body: str = "",
    *,
    imports: str = "",
    lowered: str = "",
    linked: str = "",
    functions: str = "",
    outcome: str = OUTCOME,
    memory: int = 1,
    data: str = "",
    more: str = "",
) -> bytes:
    """A component that exports `execute`, whose core function is `body`.

    The body gets the address and the length of the arguments, and returns the address of an
    outcome: its case in one byte, then, four bytes on, address and length of its text.
    """
    exported = "" if not outcome.startswith("(") else '(export $o "outcome" (type $outcome))'
    result = "$o" if exported else outcome
    defined = f"(type $outcome {outcome})" if exported else ""
    return binary(f"""
    (component
      {defined} {exported}
      {imports}
      (core module $memory
        (memory (export "memory") {memory})
        (global $next (mut i32) (i32.const 32768))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
          (global.get $next)
          (global.set $next (i32.add (global.get $next)
            (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))))
      (core instance $m (instantiate $memory))
      (alias core export $m "memory" (core memory $mem))
      (alias core export $m "realloc" (core func $realloc))
      {lowered}
      {more}
      (core module $main
        (import "m" "memory" (memory 1))
        {functions}
        {data}
        (func (export "execute") (param $at i32) (param $length i32) (result i32) {body}))
      (core instance $i (instantiate $main
        (with "m" (instance $m))
        {linked}))
      (func (export "execute") (param "arguments" string) (result {result})
        (canon lift (core func $i "execute") (memory $mem) (realloc $realloc))))
    """)


def answering(case: int, value: str) -> bytes:
    """A component that returns an outcome with a text."""
    data, _ = text(value)
    return component(
        f"""
        (i32.store8 (i32.const 16) (i32.const {case}))
        (i32.store (i32.const 20) (i32.const 1024))
        (i32.store (i32.const 24) (i32.const {len(value.encode())}))
        (i32.const 16)""",
        data=data,
    )


COMPONENT_ECHO = component("""
    (i32.store8 (i32.const 16) (i32.const 1))
    (i32.store (i32.const 20) (local.get $at))
    (i32.store (i32.const 24) (local.get $length))
    (i32.const 16)
""")
"""Returns its arguments."""
