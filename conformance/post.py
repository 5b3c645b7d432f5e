"""Connects the driver with the checks: passes each stanza to its recipient."""

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol

from conformance.drivers import Driver, Part
from conformance.model import Ability, Finding, Watch
from conformance.record import Record
from conformance.stanzas import Received
from xep.stanza import Incoming


class Box(Protocol):
    """A recipient of stanzas; see `conformance.talk.Talk`."""

    record: Record

    def answered(self, id_: str, stanza: Received) -> None:
        """Take the answer to an IQ of this recipient."""

    def told(self, stanza: Received) -> None:
        """Take a stanza to an address of this recipient that is not an answer."""


class Post:
    """Sends stanzas for the checks, finds the recipient of received ones, and shows all of them to
    the watches.

    Args:
        driver: the connection to the target.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.started = monotonic()
        self.watched: dict[str, list[tuple[Finding, Received]]] = {}
        self.seen: dict[str, int] = {}
        self.asked = 0
        self._watches: tuple[Watch, ...] = ()
        self._waiting: dict[tuple[str, str], tuple[Box, str]] = {}
        self._done: dict[tuple[str, str], tuple[Box, str]] = {}
        self._unanswered: dict[str, str] = {}
        self._boxes: dict[str, list[Box]] = {}
        self.strays: list[tuple[Finding, str]] = []

    def watch(self, watches: Iterable[Watch]) -> None:
        """Show every stanza to these watches from now on."""
        self._watches = tuple(watches)
        self.watched = {watch.name: [] for watch in self._watches}
        self.seen = dict.fromkeys(self.watched, 0)

    def open_box(self, box: Box, addresses: Iterable[str]) -> None:
        """Deliver stanzas to ``addresses`` to ``box`` too."""
        for address in addresses:
            for name in (address, address.partition("/")[0]):
                boxes = self._boxes.setdefault(name, [])
                if box not in boxes:
                    boxes.append(box)

    def close_box(self, box: Box) -> None:
        """Stop deliveries to ``box``."""
        for boxes in self._boxes.values():
            while box in boxes:
                boxes.remove(box)

    async def send(self, box: Box, sender: str, xml: str) -> None:
        """Send a stanza for ``box``."""
        box.record.add("out", self.now, xml)
        await self.driver.send(sender, xml)

    def play(self, address: str, part: Part) -> None:
        """Let ``part`` answer the target's requests to an address of the component."""
        self.driver.play(address, part)

    def stop(self, address: str, part: Part) -> None:
        """Stop ``part`` from answering for that address."""
        self.driver.stop(address, part)

    def expect(self, box: Box, sender: str, id_: str, to: str) -> None:
        """Expect the answer to an IQ that ``box`` is about to send from ``sender`` to ``to``."""
        self.asked += 1
        self._waiting[sender, id_] = (box, to)

    def give_up(self, sender: str, id_: str) -> None:
        """Stop waiting for that answer."""
        waiting = self._waiting.pop((sender, id_), None)
        if waiting is not None:
            self._unanswered[id_] = sender

    def deliver(self, head: Incoming) -> None:
        """Deliver a stanza from the target to its recipient."""
        key = (head.to or "", head.id or "")
        answer = head.kind == "iq" and head.type in ("result", "error")
        if answer and key in self._waiting:
            box, to = self._done[key] = self._waiting.pop(key)
            stanza = Received(head, to)
            self._look(stanza)
            box.record.add("in", self.now, stanza.xml)
            box.answered(key[1], stanza)
            return
        stanza = Received(head)
        self._look(stanza)
        if answer:
            self._stray(key, stanza)
            return
        for box in self._for_whom(head):
            box.told(stanza)

    def _for_whom(self, head: Incoming) -> list[Box]:
        to = head.to or ""
        found = list(self._boxes.get(to, ()))
        if Ability.STAMPED not in self.driver.abilities and head.type in ("chat", "normal"):
            # A server that delivered it to one resource may have written that resource into it.
            bare = self._boxes.get(to.partition("/")[0], ())
            found += [box for box in bare if box not in found]
        return found

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return monotonic() - self.started

    def _look(self, stanza: Received) -> None:
        for watch in self._watches:
            findings = watch.look(stanza)
            if findings is not None:
                self.seen[watch.name] += 1
                self.watched[watch.name] += [(one, stanza) for one in findings]

    def _stray(self, key: tuple[str, str], stanza: Received) -> None:
        to, id_ = key
        if key in self._done:
            box, _ = self._done[key]
            box.record.add("in", self.now, stanza.xml)
            got = f"a second answer to the IQ with the id {id_}"
        else:
            owner = self._unanswered.get(id_) or next(
                (who for (who, waiting) in self._waiting if waiting == id_), None
            )
            if owner is None:
                return  # not requested by a check: left over from before
            got = f"the answer to the IQ {id_} of {owner} was sent to {to or 'nobody'}"
        expected = "exactly one answer to each IQ, to the full JID that asked"
        self.strays.append((Finding("RUL-004", expected, got), stanza.xml))


Where = Callable[[Received], bool]
