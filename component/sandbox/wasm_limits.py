"""What a skill in WebAssembly may use: the imports that are linked, and the limits of a call."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

Import: TypeAlias = Literal["http", "memory", "credentials", "llm", "xmpp", "clock", "random"]
"""Interfaces of `protocol_schemas/skill.wit` that a skill may import only if its manifest declares
them and an admin approved it. It may always import `log` and `progress`."""

IMPORTS: Final[tuple[Import, ...]] = (
    "http",
    "memory",
    "credentials",
    "llm",
    "xmpp",
    "clock",
    "random",
)


class WasmLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call, and of the code. Sizes are in bytes, times in seconds.

    `fuel` is the number of instructions that are executed at most, `seconds` the time if the
    context of the call sets none. `table_elements` holds for each table. `memory_bytes` holds for
    each memory, of which a module has one and a component `memories` at most. `host_calls` is the
    number of calls of imported functions, `host_s` the time of one of them, `llm_s` that of one
    that asks a model. `compile_s` and `compile_bytes` are what compiling the code may take.
    """

    seconds: float = 120.0
    fuel: int = 20_000_000_000
    memory_bytes: int = 64 << 20
    memories: int = 4
    table_elements: int = 20_000
    tables: int = 16
    instances: int = 100
    output_bytes: int = 1 << 20
    log_bytes: int = 64 << 10
    host_calls: int = 1_000
    host_s: float = 30.0
    llm_s: float = 120.0
    code_bytes: int = 32 << 20
    compile_s: float = 300.0
    compile_bytes: int = 4 << 30
