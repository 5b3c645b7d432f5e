"""Plays stanzas through a real server in rounds, and looks after each round whether all is well.

A fault is played again with fewer and fewer stanzas, until one or a few are left, and reported with
what was sent, what the server made of it, and how to play it again. The campaign goes on after it.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.hostile.honest import Honest
from tests.hostile.raw import RawClient, RawComponent, RawStream
from tests.hostile.stanzas import SENDERS, Addresses, Sender, Stanza, Stanzas
from tests.hostile.tap import Tap, attributes, start_tag
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server

ROUND: Final = 300
"""Stanzas between two looks."""
_PROGRESS: Final = 100 * ROUND
_AT_ONCE: Final = 50
"""Stanzas sent at once; as many are lost at most if a server ends the stream over one of them."""
MOST_FAULTS: Final = 5
"""Different faults after which a campaign ends; each has cost a dozen rounds."""
ANSWER_S: Final = 60.0
"""Seconds in which a request is answered, however busy the machine."""
_TIMEOUT_S: Final = 60.0
_SHOWN: Final = 1500  # bytes of a stanza in a report
_GONE: Final = "the server takes no connections any more"
_HARMLESS: Final = frozenset(("debug", "info", "warning"))


@dataclass
class Fault:
    """What went wrong in a round, which stanzas it takes, and what was seen."""

    what: str
    seen: list[str] = field(default_factory=list)
    stanzas: list[Stanza] = field(default_factory=list)


class Campaign:
    """Plays the stanzas of one seed against a service that is connected through `tap`."""

    def __init__(
        self, server: Server, agent: AgentProcess, tap: Tap, honest: Honest, stanzas: Stanzas
    ) -> None:
        self.server = server
        self.agent = agent
        self.tap = tap
        self.honest = honest
        self.stanzas = stanzas
        self.sent = 0
        self.reconnected = 0
        self.faults: list[Fault] = []
        self._streams: dict[Sender, RawStream] = {}
        self._fences = 0
        self._lines = 0
        self._lost = 0
        self._wrong = 0
        self._recent: list[int] = []
        self._rounds: list[tuple[float, Sequence[int]]] = []  # when each began

    def run(self, count: int, limit_s: float, first: int = 0) -> None:
        """Play so many stanzas, from the first on, or for so many seconds."""
        give_up = time.monotonic() + limit_s
        number = first
        while number < first + count and time.monotonic() < give_up:
            numbers = range(number, min(number + ROUND, first + count))
            number = numbers.stop
            fault = self.play(numbers)
            self.sent += len(numbers)
            if self.sent % _PROGRESS < len(numbers):
                print(f"{self.server.name}: {self.sent} stanzas", time.strftime("%X"), flush=True)
            if fault is not None and fault.what == _GONE:
                fault.stanzas = [self.stanzas.make(number) for number in numbers]
                self.faults.append(fault)
                return
            if fault is not None:
                self._minimise(fault, [*self._recent, *numbers])
            if len(self.faults) >= MOST_FAULTS:
                break
            self._recent = list(numbers) if fault is None else []
        self._settle()

    def play(self, numbers: Sequence[int]) -> Fault | None:
        """Send these, wait until they have arrived, and return what went wrong, if anything."""
        made = [self.stanzas.make(number) for number in numbers]
        self._rounds.append((time.monotonic(), numbers))
        try:
            for sender in SENDERS:
                self._send(sender, [stanza for stanza in made if stanza.sender == sender])
        except TimeoutError as error:
            return Fault("the service does not answer", [str(error)])
        except ConnectionError as error:
            return Fault(_GONE, [str(error)])
        return self._fault()

    # -- sending -----------------------------------------------------------------------------------

    def _send(self, sender: Sender, stanzas: Sequence[Stanza]) -> None:
        """Send them on the stream of their sender; those that break a stream one by one, last."""
        if not stanzas:
            return
        legal = [stanza.data for stanza in stanzas if not stanza.breaks]
        for at in range(0, len(legal), _AT_ONCE):
            stream = self._stream(sender)
            stream.send(b"".join(legal[at : at + _AT_ONCE]))
            self._passed(stream)
        for stanza in stanzas:
            if stanza.breaks:
                stream = self._stream(sender)
                stream.send(stanza.data)
                stream.finish()
                self._passed(self._login(sender))

    def _passed(self, stream: RawStream) -> bool:
        """Wait until all that went into a stream has reached the service; False if it has ended."""
        give_up = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < give_up:
            self._fences += 1
            if (passed := stream.passed(self._fences)) is not None:
                return passed
        raise TimeoutError(f"no answer to pings after the stanzas, in {_TIMEOUT_S} s")

    def _stream(self, sender: Sender) -> RawStream:
        stream = self._streams.get(sender)
        return self._login(sender) if stream is None or stream.ended else stream

    def _login(self, sender: Sender) -> RawStream:
        if (old := self._streams.pop(sender, None)) is not None:
            old.close()
            self.reconnected += 1
        give_up = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                stream = self._connect(sender)
                break
            except ConnectionError:  # the server has not noticed yet that the other one is gone
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)  # between two attempts
        if old is not None:
            stream.seen = old.seen
        self._streams[sender] = stream
        return stream

    def _connect(self, sender: Sender) -> RawStream:
        if sender == "component":
            return RawComponent(self.server)
        return RawClient(self.server, self.stanzas.addresses.accounts[SENDERS.index(sender)])

    # -- looking -----------------------------------------------------------------------------------

    def _fault(self) -> Fault | None:
        if self.tap.lost > self._lost:
            self._lost = self.tap.lost
            self.honest.forgives()
            self._wait(lambda: self.tap.connections > self.tap.lost, "no new stream after a loss")
            self._lines = len(self.agent.errors)
            return Fault("the component's stream is lost")
        lines = self.agent.errors[self._lines :]
        self._lines += len(lines)
        if bad := [line for line in lines if _is_bad(line)]:
            return Fault("an error is in the log", bad)
        if wrong := self.tap.wrong[self._wrong :]:
            self._wrong += len(wrong)
            return Fault("a request is answered twice, or somebody else's", wrong)
        if late := self.tap.unanswered(ANSWER_S):
            self.tap.forget()
            self.faults.append(self._unanswered(late))
        if trouble := self.honest.trouble():
            return Fault("an honest client is not served", [trouble])
        if not self.agent.running:
            return Fault("the service has ended", [self.agent.tail()])
        return None

    def _unanswered(self, late: list[tuple[float, bytes]]) -> Fault:
        """Requests without an answer, and the stanzas of the same time and id."""
        fault = Fault("a request is not answered", [_shown(data) for _, data in late])
        for at, data in late:
            numbers = next((of for since, of in reversed(self._rounds) if since <= at), range(0))
            wanted = attributes(start_tag(data)).get("id")
            for stanza in map(self.stanzas.make, numbers):
                if not stanza.breaks and attributes(start_tag(stanza.data)).get("id") == wanted:
                    fault.stanzas.append(stanza)
        return fault

    def _settle(self) -> None:
        """Wait until every request is answered."""
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: not self.tap.unanswered(), "")
        if left := self.tap.unanswered():
            self.faults.append(self._unanswered(left))
        elif (fault := self._fault()) is not None:
            self.faults.append(fault)

    def _wait(self, is_so: Callable[[], bool], otherwise: str) -> None:
        give_up = time.monotonic() + _TIMEOUT_S
        while not is_so():
            if time.monotonic() > give_up:
                raise TimeoutError(otherwise)
            time.sleep(0.01)  # between two looks

    # -- minimising --------------------------------------------------------------------------------

    def _minimise(self, fault: Fault, numbers: list[int]) -> None:
        """Find the fewest stanzas that show the fault again, if it shows again."""
        found = numbers
        pieces = 2
        while len(found) > 1 and pieces <= len(found):
            size = -(-len(found) // pieces)
            parts = [found[at : at + size] for at in range(0, len(found), size)]
            for part in parts:
                again = self.play(part)
                if again is not None and again.what == fault.what:
                    found, fault, pieces = part, again, 2
                    fault.seen = fault.seen or self._seen()
                    break
            else:
                if pieces >= 8:  # it takes several of them, or time: enough is known
                    break
                pieces *= 2
        fault.seen = fault.seen or self._seen()
        fault.stanzas = [self.stanzas.make(number) for number in found]
        if all(known.stanzas != fault.stanzas for known in self.faults):
            self.faults.append(fault)

    def _seen(self) -> list[str]:
        reasons = self.agent.log("not connected")
        last = [f"the server passed on: {_shown(data)}" for data in self.tap.last()[-2:]]
        return [*last, *(str(line.get("reason")) for line in reasons[-1:])]

    def report(self, test: str) -> str:
        """All faults, for a person; `test` is the name by which pytest knows the test."""
        lines = [f"{len(self.faults)} faults with seed {self.stanzas.seed}:"]
        for fault in self.faults:
            lines.append(f"\n{fault.what}, with {len(fault.stanzas)} stanzas")
            lines += [f"  the {one.sender} sent: {_shown(one.data)}" for one in fault.stanzas[:3]]
            lines += [f"  seen: {seen[:_SHOWN]}" for seen in fault.seen[:5]]
            if fault.stanzas:
                first, last = fault.stanzas[0].number, fault.stanzas[-1].number
                what = f"HOSTILE_FIRST={first} HOSTILE_STANZAS={last + 1 - first}"
                lines.append(f"  again: HOSTILE_SEED={self.stanzas.seed} {what} pytest '{test}'")
        return "\n".join(lines)

    @contextlib.contextmanager
    def running(self) -> Iterator["Campaign"]:
        """For the time of the context; the streams are closed at its end."""
        try:
            yield self
        finally:
            for stream in self._streams.values():
                stream.close()


def memory_bytes(pid: int) -> int:
    """The resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def addresses_of(server: Server, friends: Sequence[str]) -> Addresses:
    """Who there is on a server with a second component."""
    assert server.second is not None
    return Addresses(
        server.component_domain, server.host, server.second, tuple(friends), ("juliet", "mallory")
    )


def _is_bad(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return True
    return "exception" in entry or entry.get("level") not in _HARMLESS


def _shown(data: bytes) -> str:
    text = repr(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(data)} bytes)"
