"""The connection to the target: one protocol, and a module for each implementation."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from conformance.model import Ability
from xep.stanza import Incoming

Deliver = Callable[[Incoming], None]
"""Receives each stanza from the target; it must not wait."""


Part = Callable[[Incoming], str]
"""Answers an IQ of type get or set from the target to an address of the component, with an IQ."""


class DriverError(Exception):
    """The target cannot be reached; the sentence says why, and how to correct it."""


@dataclass(frozen=True)
class Cast:
    """The full JIDs that the checks use; None if the driver has none for the role.

    Attributes:
        caller: the principal of most requests.
        other: another resource of the same principal.
        stranger: another principal, also admitted.
        refused: a principal that the target's policy refuses.
        peer: an agent of the kit that the target may send requests to; see `Driver.play`.
    """

    caller: str
    other: str | None = None
    stranger: str | None = None
    refused: str | None = None
    peer: str | None = None


class Driver(Protocol):
    """A connection to the target.

    Attributes:
        name: in words, for the report.
        abilities: its abilities beyond sending and receiving valid stanzas.
        lanes: the maximum number of concurrent checks; more than one only if each of them has its
            own resources.
        ordered: how many of these lanes keep the order of messages to full and bare JIDs.
    """

    name: str
    abilities: frozenset[Ability]
    lanes: int
    ordered: int

    def cast(self, lane: str, *, ordered: bool = False) -> Cast:
        """Return the addresses of the check ``lane``.

        If ``ordered``, messages to the caller's full and bare JIDs arrive in the order in which
        they were sent.
        """

    def done(self, lane: str) -> None:
        """Release the addresses of a finished check."""

    def streams(self, cast: Cast) -> tuple[str, ...]:
        """Return the full JIDs of the caller that a check which runs alone may use.

        Each has its own stream if there are several: servers limit the rate of a stream.
        """

    def open(self, deliver: Deliver) -> AbstractAsyncContextManager[None]:
        """Connect; within the block, deliver each stanza from the target.

        Raises:
            DriverError: the target cannot be reached.
        """

    def play(self, address: str, part: Part) -> None:
        """Answer IQs to ``address``, or its bare JID, with ``part`` from now on.

        Only for drivers with `Ability.PEER`; with others, servers and clients answer themselves.
        """

    def stop(self, address: str, part: Part) -> None:
        """Undo a `play`; the previous ``part`` of the address continues."""

    async def send(self, sender: str, xml: str) -> None:
        """Send one stanza, whose text contains ``from`` and ``to``, as ``sender``.

        Raises:
            DriverError: the connection is lost.
        """
