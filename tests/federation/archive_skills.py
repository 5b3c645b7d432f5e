"""The skills of the agent at the end of the chain."""

import os
from functools import partial
from pathlib import Path

import anyio

from component.skills import Context, skill

GATE_PORT = 7000
"""The port at which a skill reports that it waits, and gets the signal to go on."""


def effect(line: str) -> None:
    with Path("effects").open("a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


async def wait_at_gate(label: str) -> None:
    async with await anyio.connect_tcp("127.0.0.1", GATE_PORT) as gate:
        await gate.send(f"{label}\n".encode())
        await gate.receive()


@skill(read_only=True, open_world=False)
def search(words: str) -> str:
    """Search the archive."""
    return f"Found {words}."


@skill(read_only=True, open_world=False)
async def choose(context: Context, label: str = "") -> str:
    """Ask for a year, after waiting at the gate if there is a label."""

    async def wait(_key: str) -> bool:
        await wait_at_gate(label)
        return True

    if label:
        await context.step("wait", wait, bool, repeatable=True)
    schema = {
        "type": "object",
        "properties": {"year": {"type": "string"}},
        "required": ["year"],
    }
    answer = await context.ask("Of which year?", schema)
    return f"That of {answer['year']}."


@skill(read_only=True, open_world=False, durable=True, capabilities=("llm",))
async def read(books: str, context: Context) -> str:
    """Have a model read books, one after the other."""
    schema = {"type": "object", "properties": {"said": {"type": "string"}}}
    for number in range(1, int(books) + 1):
        await context.llm(f"Sum up book {number}.", schema, max_tokens=50)
        await context.progress(number / int(books), f"read {number} of {books} books")
    return "All are read."


@skill(open_world=False)
def delete(file: str) -> str:
    """Delete a file."""
    effect(f"deleted {file}")
    return f"{file} is gone."


@skill(destructive=False, open_world=False, durable=True)
async def collect(label: str, context: Context) -> str:
    """Do two steps, and wait at the gate between them."""

    async def do(which: str, _key: str) -> str:
        effect(f"{label} {which}")
        return which

    await context.step("first", partial(do, "first"), str)
    await context.progress(0.5, f"half of {label}")
    await wait_at_gate(label)
    await context.step("second", partial(do, "second"), str)
    return f"{label} is complete."
