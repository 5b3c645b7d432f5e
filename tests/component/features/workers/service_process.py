"""A service in a process of its own, to be killed: it calls `pay` and waits."""

import sys
from pathlib import Path

import anyio

from component.app.schema import SCHEMA
from component.store import Storage
from tests.component.features.workers.support import serving


async def main(directory: Path, url: str, mode: str, number: int) -> None:
    """Call the skill, as a request named `once`."""
    async with serving(lambda: Storage.open(SCHEMA, directory), url, "pay") as served:
        await served.world.run("pay", json={"number": number, "seconds": 1.5}, id="once", mode=mode)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), backend="trio")
