"""Skills that the tests run in confined children."""

import os
import stat
import sys
from typing import Annotated

import anyio
import msgspec

from component.skills import Context, InvalidParam, Output, SkillError, skill
from component.skills.host import HostError

count = 0


@skill(read_only=True, open_world=False, tags=["text"], timeout=30)
def shout(text: Annotated[str, msgspec.Meta(description="What to say.")]) -> str:
    """Return the text in capitals."""
    return text.upper()


@skill
def counted() -> list[int]:
    """Count the calls of this process, and name it."""
    global count
    count += 1
    return [count, os.getpid()]


@skill
def prints(lines: int) -> list[bool]:
    """Print lines of 1,000 characters, and say which of the standard streams are pipes."""
    for number in range(lines):
        print(f"{number:999}", file=sys.stderr)
    return [stat.S_ISFIFO(os.fstat(number).st_mode) for number in (1, 2)]


@skill
def refuse() -> str:
    """Refuse."""
    raise SkillError("not today")


@skill
def picky(number: int) -> int:
    """Accept even numbers only."""
    if number % 2:
        raise InvalidParam("number", "must be even")
    return number


@skill
def broken() -> str:
    """Fail."""
    raise ValueError("inside")


@skill
def dies(status: int = 3) -> str:
    """End the process."""
    os._exit(status)


@skill
async def waits(context: Context, fraction: float = 0.5) -> str:
    """Report progress, and wait to be cancelled."""
    await context.progress(fraction, "waiting")
    await anyio.sleep_forever()
    return "never"


@skill
async def reports(context: Context) -> list[Output]:
    """Use what each skill may use."""
    await context.progress(0.25, "begun")
    await context.output("log.txt", "a line", last=True)
    context.log("said by the skill", "warning")
    return [Output(f"{context.principal} {context.agent} {context.sender}"), Output(context.key)]


@skill
async def asks(url: str, context: Context) -> str:
    """Make a request."""
    try:
        response = await context.http.get(url, credential="token")
    except HostError as error:
        return f"failed: {error}"
    return f"{response.status} {response.text}"


@skill
async def remembers(key: str, value: str, context: Context) -> list[str]:
    """Use the memory."""
    memory = context.memory
    await memory.put(key, value)
    found = [await memory.get(key) or "", *await memory.keys()]
    await memory.delete(key)
    return [*found, str(await memory.get(key))]


@skill
async def asks_model(context: Context) -> str:
    """Ask the model."""
    answer = await context.llm("How?", {"type": "object", "properties": {"a": {"type": "string"}}})
    return answer["a"]


@skill
def leaves() -> list[str]:
    """Leave a file in the working directory, and say what was there."""
    found = os.listdir(".")
    os.makedirs("directory/inner")
    with open("directory/file", "w") as file:
        file.write("left")
    return found
