"""What a skill may know about the call it serves, and what it may say while it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Context:
    """One call, as the skill sees it.

    A skill asks for it by annotating a parameter with this class; it is passed in and is no part
    of the skill's schema. It belongs to one call and must not be kept after it.

    `principal` is the bare JID that policy decided on, `sender` the full address the call came
    from, `skill` the name the skill was called by.
    """

    __slots__ = ("_deadline", "_report", "principal", "sender", "skill")

    def __init__(
        self,
        *,
        principal: str,
        sender: str,
        skill: str,
        report: Callable[[float, str], Awaitable[None]] | None = None,
    ) -> None:
        """Take who asks for what; `report` passes progress on, and None means nobody listens."""
        self.principal = principal
        self.sender = sender
        self.skill = skill
        self._report = report
        self._deadline: float | None = None

    async def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the work is, from 0 to 1, with a short text for people.

        In a plain function: `anyio.from_thread.run(context.progress, 0.5, "half way")`.
        Raises ValueError when the fraction is not between 0 and 1.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress goes from 0 to 1, not {fraction}")
        if self._report is not None:
            await self._report(fraction, text)

    def remaining(self) -> float | None:
        """Return the seconds left before the call is given up (0 when over), None for no limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic())

    def shorten(self, seconds: float) -> None:
        """Give the call at most so many seconds from now. For the executor."""
        # The monotonic clock and not the event loop's: a worker thread has no event loop to ask.
        deadline = time.monotonic() + seconds
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
