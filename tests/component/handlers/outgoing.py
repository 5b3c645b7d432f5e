"""What goes out, and whether it has gone."""

from collections.abc import Callable

import anyio


class Outgoing:
    """Gives each stanza to `take`; everything counts as gone while `gone` is set."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self.gone = anyio.Event()
        self.gone.set()

    def put(self, xml: str) -> None:
        self._take(xml)

    @property
    def waits(self) -> bool:
        return not self.gone.is_set()

    async def flushed(self) -> None:
        await self.gone.wait()
