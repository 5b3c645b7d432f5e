"""Queries that every entity answers: ping, software version, time (XEP-0199, XEP-0092,
XEP-0202).
"""

from collections.abc import Callable
from datetime import UTC, datetime, timezone

from component import system
from component.router.table import IQRoute, Request
from xep import entity_time, ping, version


class About:
    """Answers queries that are not about agents.

    Args:
        software: the name of the software.
        release: its version.
        now: returns the time with its zone; the system's clock by default.
    """

    def __init__(
        self,
        software: str,
        release: str,
        now: Callable[[], datetime] = lambda: system.now().astimezone(),
    ) -> None:
        # The operating system is not disclosed (XEP-0092 §5).
        self._version = version.Version(name=software, version=release)
        self._now = now

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute("get", ping.Ping, self.pong, (ping.NAMESPACE,)),
            IQRoute("get", version.VersionQuery, self.version, (version.NAMESPACE,)),
            IQRoute("get", entity_time.TimeQuery, self.time, (entity_time.NAMESPACE,)),
        )

    def pong(self, _request: Request[ping.Ping]) -> None:
        """Answer a ping with an empty result (XEP-0199 §4)."""

    def version(self, _request: Request[version.VersionQuery]) -> version.Version:
        """Return the name and version of the software."""
        return self._version

    def time(self, _request: Request[entity_time.TimeQuery]) -> entity_time.Time:
        """Return the time and the time zone."""
        now = self._now()
        offset = now.utcoffset()
        return entity_time.Time(tzo=UTC if offset is None else timezone(offset), utc=now)
