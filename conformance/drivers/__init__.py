"""How the target is reached: one protocol, and a module for each way."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from conformance.model import Ability
from xep.stanza import Incoming

Deliver = Callable[[Incoming], None]
"""Takes each stanza from the target to us; it must not wait."""


Part = Callable[[Incoming], str]
"""Answers an IQ of type get or set that the target sends to an address of ours: with an IQ."""


class DriverError(Exception):
    """The target cannot be reached in this way; a sentence that says why, and how to mend it."""


@dataclass(frozen=True)
class Cast:
    """The full JIDs that the checks speak as; None where the driver has nobody for the part.

    Attributes:
        caller: the principal that most requests come from.
        other: another resource of the same principal.
        stranger: another principal, admitted too.
        refused: a principal that the target's policy refuses.
        peer: an agent of ours that the target may ask things of; see `Driver.play`.
    """

    caller: str
    other: str | None = None
    stranger: str | None = None
    refused: str | None = None
    peer: str | None = None


class Driver(Protocol):
    """One way to the target.

    Attributes:
        name: in words, for the report.
        abilities: what it can do beyond sending and receiving valid stanzas.
        lanes: how many checks may be under way at once; more than one only where each of them
            can speak from resources of its own.
        ordered: how many of these lanes keep the order of messages to full and bare JIDs.
    """

    name: str
    abilities: frozenset[Ability]
    lanes: int
    ordered: int

    def cast(self, lane: str, *, ordered: bool = False) -> Cast:
        """Who speaks in the check ``lane``.

        If ``ordered``, what goes to its full and what goes to its bare JID comes to the caller in
        the order in which it was sent.
        """

    def done(self, lane: str) -> None:
        """The check is over: what it spoke from may be another's."""

    def open(self, deliver: Deliver) -> AbstractAsyncContextManager[None]:
        """Connect; for as long as the block lasts, hand each stanza from the target over.

        Raises:
            DriverError: there is no way through.
        """

    def play(self, address: str, part: Part) -> None:
        """From now on answer IQs to ``address``, or its bare JID, by ``part``.

        Only for who has `Ability.PEER`; the others' servers and clients answer of themselves.
        """

    def stop(self, address: str, part: Part) -> None:
        """Take back a `play`; whoever has played there before goes on."""

    async def send(self, sender: str, xml: str) -> None:
        """Send one stanza, whose text holds ``from`` and ``to``, as ``sender``.

        Raises:
            DriverError: the connection is gone.
        """
