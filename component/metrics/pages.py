"""The three pages: metrics, liveness and readiness."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from component.metrics.exposition import CONTENT_TYPE, Exposition
from component.metrics.http import Page, Response

_PATIENCE_S: Final = 2.0


class Pages:
    """Creates the pages.

    Args:
        exposition: the metrics.
        refresh: updates metrics whose values have to be awaited.
        faults: returns the reasons why no work can be done now, one sentence each; it may write to
            the storage.
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
        """The pages by path."""
        return {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}

    async def _metrics(self) -> Response:
        with anyio.move_on_after(_PATIENCE_S):  # old values are better than none
            await self._refresh()
        return Response(200, self._exposition.text(), CONTENT_TYPE)

    async def _health(self) -> Response:
        # A response proves that the process is alive and its event loop runs.
        return Response(200, b"ok\n")

    async def _ready(self) -> Response:
        faults = ["The storage does not answer."]
        with anyio.move_on_after(_PATIENCE_S):
            faults = await self._faults()
        if faults:
            return Response(503, "".join(f"{fault}\n" for fault in faults).encode())
        return Response(200, b"ready\n")
