"""Where handlers put what they send of their own accord."""

from typing import Protocol


class Out(Protocol):
    """What goes out, in order: `component.connection.outbox.Outbox`."""

    def put(self, xml: str) -> None:
        """Take one stanza. Never waits."""

    @property
    def waits(self) -> bool:
        """Something was put that has not gone."""

    async def flushed(self) -> None:
        """Wait until all that was put so far has gone."""
