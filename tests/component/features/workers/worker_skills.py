"""Skills of workers, which write what they do into a file: LEDGER in the environment."""

import os
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec

from xmpp_agent import Context, File, InvalidParam, SkillError, skill


def note(what: str) -> None:
    """Add a line; the kernel keeps it even if this process is killed."""
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{what}\n".encode())
    os.close(file)


class Colour(msgspec.Struct):
    """What is asked."""

    colour: str
    twice: bool = False


class Answer(msgspec.Struct):
    """What a model says."""

    word: str


@skill(read_only=True, destructive=False)
def shout(text: str) -> str:
    """Return a text in capitals."""
    return text.upper()


@skill(capabilities=["network:pay.example.com:443"])
async def pay(number: int, seconds: float = 0.0) -> str:
    """Pay once."""
    note(f"begin pay {number}")
    if seconds:
        await anyio.sleep(seconds)
    note(f"pay {number}")
    return f"paid {number}"


@skill
async def pay_when_told(number: int, file: str) -> str:
    """Pay once, as soon as there is a file."""
    note(f"begin pay {number}")
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - its test is another process
        await anyio.sleep(0.01)
    note(f"pay {number}")
    return f"paid {number}"


@skill(idempotent=True)
async def store(number: int, seconds: float = 0.0) -> str:
    """Store a number, as often as it is called."""
    note(f"begin store {number}")
    if seconds:
        await anyio.sleep(seconds)
    note(f"store {number}")
    return f"stored {number}"


@skill(read_only=True, destructive=False)
def files(size: int = 3) -> list[Any]:
    """Return files."""
    return (
        [File(b"\0" * size, "image/png", "a.png"), "text"]
        if size < 0
        else [File(b"\0" * size, "image/png", "a.png")]
    )


@skill(read_only=True, destructive=False)
async def hang(context: Context) -> str:
    """Report progress, and never end."""
    note("hang")
    await context.progress(0.5, "half way")
    try:
        await anyio.sleep_forever()
    finally:
        note("hang stopped")
    return ""


@skill
async def hang_for_good(context: Context) -> str:
    """Never end, after an effect."""
    note("hang")
    try:
        await anyio.sleep_forever()
    finally:
        note("hang stopped")
    return ""


@skill
def fail(how: str = "error") -> str:
    """Fail in several ways."""
    if how == "refuse":
        raise SkillError("It is closed.")
    if how == "parameter":
        raise InvalidParam("how", "cannot be that")
    raise RuntimeError("a secret of the worker")


@skill(read_only=True, destructive=False, timeout=0.2)
async def slow() -> str:
    """Take too long."""
    await anyio.sleep(30)
    return ""


@skill(durable=True)
async def paint(context: Context) -> str:
    """Ask what to paint with, and paint."""
    mixed = await context.step("mix", _mix, str)
    asked = await context.ask("Which colour?", Colour)
    await context.output("log", f"mixed {mixed}, ", last=False)
    await context.output("log", "painted", last=True)
    return f"{asked.colour} {asked.twice}"


async def _mix(_key: str) -> str:
    note("mix")
    return "it"


@skill(read_only=True, destructive=False, capabilities=["llm"])
async def think(context: Context) -> str:
    """Ask a model."""
    return (await context.llm("Say a word.", Answer)).word


@skill
async def ask_without_durability(context: Context) -> str:
    """Ask where it is not possible."""
    return (await context.ask("Which colour?", Colour)).colour


@skill(durable=True)
async def start_tasks(context: Context) -> str:
    """Start a task, which a worker cannot."""
    return await context.start("shout", {"text": "a"})


@skill(read_only=True, destructive=False)
async def who(context: Context) -> str:
    """Return who calls, and which process runs it."""
    return f"{context.principal} {context.sender} {os.getpid()}"


@skill(idempotent=True)
def kill_me() -> str:
    """End the worker, whenever it is called."""
    note("kill me")
    os._exit(9)


@skill(read_only=True, destructive=False)
def block(seconds: float) -> str:
    """Block a thread."""
    time.sleep(seconds)
    return str(Path.cwd())
