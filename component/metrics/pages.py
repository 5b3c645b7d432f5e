"""The three pages: the figures, whether the process lives, whether it is ready for work."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from component.metrics.exposition import CONTENT_TYPE, Exposition
from component.metrics.http import Page, Response

_PATIENCE_S: Final = 2.0


class Pages:
    """Makes the pages.

    Args:
        exposition: the figures.
        refresh: brings figures up to date that have to be waited for.
        faults: why no work can be done now, a sentence each; it may write to the storage.
    """

    def __init__(
        self,
        exposition: Exposition,
        refresh: Callable[[], Awaitable[None]],
        faults: Callable[[], Awaitable[list[str]]],
    ) -> None:
        self._exposition = exposition
        self._refresh = refresh
        self._faults = faults

    def by_path(self) -> Mapping[str, Page]:
        """Who makes which page."""
        return {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}

    async def _metrics(self) -> Response:
        with anyio.move_on_after(_PATIENCE_S):  # figures of before are better than none
            await self._refresh()
        return Response(200, self._exposition.text(), CONTENT_TYPE)

    async def _health(self) -> Response:
        # Who can say so lives, and its event loop turns.
        return Response(200, b"ok\n")

    async def _ready(self) -> Response:
        faults = ["The storage does not answer."]
        with anyio.move_on_after(_PATIENCE_S):
            faults = await self._faults()
        if faults:
            return Response(503, "".join(f"{fault}\n" for fault in faults).encode())
        return Response(200, b"ready\n")
