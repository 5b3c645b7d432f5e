"""What must hold in rooms, from what rooms and the agent say to each other, and from prompts.

A stanza of the session with the address of a room is one that the room has sent to the agent, or
received from it; see `tests.simulation.room_service`.
"""

import re
from collections import defaultdict
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from tests.simulation.history import Effect, Entry, Fault, Prompt, Stanza
from tests.simulation.life import DAY_S
from tests.simulation.room_service import AWAY, COUNCIL, FORGOTTEN, LOBBY
from tests.simulation.rules import Rule, Violation

_LABEL: Final = re.compile(r"\b[rw]\d+(?:\.\w+)?\b")
_ANSWER: Final = re.compile(r"re ([rw]\d[\w., ]*):\s")
_STOP: Final = re.compile(r"(?i)(@?bot\S*\s+)?/?stop!?")
_MARKS: Final = re.compile(r"\b(said-[a-z]+|hush-[a-z]+|secret-[a-z]+)-\d")
_BROKEN: Final = ("kill", "stop", "crash", "start", "cut", "full", "error")
_MEMORY_S: Final = 10.0
"""Seconds in which a request may be lost with the process: until it is stored."""
_BUSY_S: Final = 1800.0
_MINUTE_S: Final = 60.0


class RoomRule(Rule):
    """A rule about what the agent sees of rooms.

    Attributes:
        own: the nicknames that the agent has, by room.
        is_muted: whether it has no voice, by room.
        is_ill: whether the disk fails.
    """

    def __init__(self) -> None:
        self.own: dict[str, set[str]] = {LOBBY: set(), COUNCIL: set()}
        self.is_muted = {LOBBY: False, COUNCIL: False}
        self.is_ill = False

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._saw_fault(entry)
        elif isinstance(entry, Stanza) and entry.session in self.own and stanza is not None:
            self._saw_stanza(entry, stanza)

    def _saw_fault(self, fault: Fault) -> None:
        if fault.kind in ("full", "error", "healthy") and fault.about.startswith("disk"):
            self.is_ill = fault.kind != "healthy"
        if fault.about == FORGOTTEN:
            for room in self.own:
                self.own[room].clear()
                self.out(room)
        self.broke(fault)

    def _saw_stanza(self, entry: Stanza, stanza: ET.Element) -> None:
        room, type_ = entry.session, stanza.get("type", "")
        kind = stanza.tag.rpartition("}")[2]
        speaks = type_ in ("groupchat", "chat") and stanza.find("{*}body") is not None
        nick = stanza.get("from" if entry.way == "sent" else "to", "").partition("/")[2]
        if kind == "presence" and entry.way == "sent":
            self._moved(room, nick, type_, stanza)
        elif speaks and entry.way == "received":
            if self.own[room]:
                self.said(entry, stanza, nick)
        elif speaks and nick and nick not in self.own[room]:
            self.heard(entry, stanza, nick)

    def _moved(self, room: str, nick: str, type_: str, presence: ET.Element) -> None:
        codes = {one.get("code") for one in presence.iter() if one.tag.endswith("}status")}
        if "110" not in codes:
            return
        if type_ == "unavailable":
            self.own[room].discard(nick)
            if "303" not in codes:
                self.out(room)
            return
        if nick not in self.own[room]:
            self.own[room].add(nick)
            self.entered(room)
        item = next((one for one in presence.iter() if one.tag.endswith("}item")), None)
        self.is_muted[room] = item is not None and item.get("role") == "visitor"
        if self.is_muted[room]:
            self.out(room)

    # What rules look at.

    def heard(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        """Look at what an occupant says to all, or to the agent."""

    def said(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        """Look at what the agent says to all, or to an occupant."""

    def entered(self, room: str) -> None:
        """Note that the agent has entered a room, or has another nickname there."""

    def out(self, room: str) -> None:
        """Note that the agent has left a room, or lost its voice there."""

    def broke(self, fault: Fault) -> None:
        """Look at a fault."""

    def addresses(self, room: str, stanza: ET.Element) -> bool:
        """Return whether a message is for the agent."""
        body = stanza.findtext("{*}body", "")
        pointers = [one.get("uri", "") for one in stanza.findall("{*}reference")]
        pointers += [one.get("to", "") for one in stanza.findall("{*}reply")]
        return any(
            body.startswith(f"{nick}: ") or any(one.endswith(f"/{nick}") for one in pointers)
            for nick in self.own[room]
        )


_SPENT: Final = "the daily budget of this room is used up"


class _Open(msgspec.Struct):
    """A message that is not answered yet."""

    at: float
    room: str
    is_excused: bool = False


class Answered(RoomRule):
    """Each message to the agent is answered once, or declined, unless something prevented it."""

    kind = "groupchat"

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, _Open] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._answers: dict[str, set[str]] = defaultdict(set)
        self._heard: dict[str, list[float]] = defaultdict(list)
        self._said: dict[str, list[float]] = defaultdict(list)
        self._to_stop: set[str] = set()
        self._stopped: set[str] = set()
        self._spent: dict[str, float] = {}
        """When the agent has said last that it has no more budget for a room today."""

    def heard(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        body, room = stanza.findtext("{*}body", ""), entry.session
        if stanza.get("type") != self.kind:
            return
        if _STOP.fullmatch(body.replace(":", "")):
            self._excuse(room)
            self._to_stop |= {label for label, one in self._open.items() if one.room == room}
        label = next(iter(_LABEL.findall(body)), "")
        is_private = self.kind == "chat"
        if not label or not (is_private or self.addresses(room, stanza)):
            return
        id_ = next((one.get("id", "") for one in stanza.findall("{*}stanza-id")), "")
        self._ids[room, id_] = label
        now = entry.at
        is_busy = (
            _count(self._heard[room], now) >= 5
            or _count(self._said[room], now) >= 8
            or any(one.room == room and now - one.at < _BUSY_S for one in self._open.values())
        )
        is_spent = now - self._spent.get(room, -DAY_S) < DAY_S
        is_excused = self.is_ill or is_busy or is_spent or self.is_muted[room] or nick == "Parrot"
        self._heard[room].append(now)
        self._open[label] = _Open(now, room, is_excused)

    def said(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        body, room = stanza.findtext("{*}body", ""), entry.session
        if stanza.get("type") != self.kind or self.is_muted[room]:
            return
        self._said[room].append(entry.at)
        replied = ""
        for reply in stanza.findall("{*}reply"):
            replied = self._ids.get((room, reply.get("id", "")), "")
            self._open.pop(replied, None)
        if _SPENT in body:
            self._spent[room] = entry.at
        if body == "Stopped.":
            self._stopped |= self._to_stop & self._open.keys()
        answer = _ANSWER.match(body)
        if answer is None:
            # An answer that says that there is none is about all messages of its turn.
            if self.kind == "chat" or stanza.get("id", "").endswith(".answer"):
                self._excuse(room)
            return
        labels = _LABEL.findall(answer[1])
        for label in labels:
            self._open.pop(label, None)
            if label[0] != ("r" if self.kind == "groupchat" else "w"):
                raise Violation(f"{label} is answered where it was not said: {body}")
        # An answer to several messages is a reply to one of them.
        label = replied or labels[-1]
        self._answers[label].add(stanza.get("id", ""))
        if len(self._answers[label]) > 1:
            raise Violation(f"{label} was answered {len(self._answers[label])} times")
        if label in self._stopped:
            raise Violation(f"{label} was answered after it was stopped")

    def out(self, room: str) -> None:
        self._excuse(room)

    def broke(self, fault: Fault) -> None:
        if fault.about.startswith(AWAY):
            for room in self.own:
                self._excuse(room)
        if fault.kind in _BROKEN:
            for one in self._open.values():
                one.is_excused = one.is_excused or fault.at - one.at < _MEMORY_S

    def _excuse(self, room: str) -> None:
        for one in self._open.values():
            one.is_excused = one.is_excused or one.room == room

    def at_rest(self) -> None:
        left = [label for label, one in self._open.items() if not one.is_excused]
        if left:
            raise Violation(f"nobody has answered {left}")


class Whispers(Answered):
    """The same holds for private messages of occupants."""

    kind = "chat"


def _count(times: list[float], now: float) -> int:
    return sum(now - one < _MINUTE_S for one in times[-20:])


class Addressed(RoomRule):
    """The agent answers nothing, and does nothing, that is not for it or not allowed there."""

    def __init__(self) -> None:
        super().__init__()
        self._others: set[str] = set()
        """Labels of what was said to others, or by nobody to whom the agent is there."""
        self._ids: dict[tuple[str, str], str] = {}
        self._rooms: dict[str, str] = {}

    def heard(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        label = next(iter(_LABEL.findall(stanza.findtext("{*}body", ""))), "")
        self._rooms[label] = entry.session
        if stanza.get("type") == "groupchat" and not self.addresses(entry.session, stanza):
            self._others.add(label)
            for one in stanza.findall("{*}stanza-id"):
                self._ids[entry.session, one.get("id", "")] = label

    def said(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        answer = _ANSWER.match(stanza.findtext("{*}body", ""))
        labels = set() if answer is None else set(_LABEL.findall(answer[1]))
        labels |= {
            self._ids.get((entry.session, one.get("id", "")), "")
            for one in stanza.findall("{*}reply")
        }
        if wrong := labels & self._others - {""}:
            raise Violation(f"the agent answers what is not for it: {sorted(wrong)}")

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Effect) and entry.label[:1] in ("r", "w"):
            where = self._rooms.get(entry.label)
            if where == LOBBY:
                raise Violation(f"something was done for the lobby, which may only read: {entry}")
            if entry.label in self._others:
                raise Violation(f"the agent does what is not for it: {entry}")
        super().saw(entry, stanza)


class Present(RoomRule):
    """After quiet time, the agent is in each room once."""

    def at_rest(self) -> None:
        for room, nicks in self.own.items():
            if len(nicks) != 1:
                raise Violation(f"the agent is in {room} as {sorted(nicks) or 'nobody'}")


class Private(Rule):
    """What was said in a room, in private messages and in chats is never together in a prompt."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Prompt):
            marks = set(_MARKS.findall(entry.text))
            if len(marks) > 1:
                raise Violation(f"a prompt has {sorted(marks)}")


class Turns(RoomRule):
    """The agent answers a program at most twice without a message of a person."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = 0
        self._of: dict[str, int] = {}
        self._answered: dict[int, set[str]] = defaultdict(set)
        self._since: set[str] = set()

    def heard(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        if entry.session != LOBBY or stanza.get("type") != "groupchat":
            return
        if nick == "Parrot":
            for label in _LABEL.findall(stanza.findtext("{*}body", "")):
                self._of[label] = self._turn
        else:
            self._next()

    def said(self, entry: Stanza, stanza: ET.Element, nick: str) -> None:
        answer = _ANSWER.match(stanza.findtext("{*}body", ""))
        for label in () if answer is None else _LABEL.findall(answer[1]):
            if label in self._of:
                answers = self._answered[self._of[label]]
                answers.add(stanza.get("id", ""))
                self._since.add(stanza.get("id", ""))
                # Two may be late, and a person may have spoken while the third was asked.
                if min(len(answers), len(self._since)) > 2:
                    raise Violation("the agent has answered a program three times in a row")

    def broke(self, fault: Fault) -> None:
        if fault.kind == "start":  # it is not stored how often a program was answered
            self._next()

    def _next(self) -> None:
        self._turn += 1
        self._since.clear()
