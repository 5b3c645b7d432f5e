"""What must hold when people block the agent, and subscribe to its presence."""

from collections import defaultdict
from typing import Final
from xml.etree import ElementTree as ET

from tests.kit.service import AGENT
from tests.simulation.history import Entry, Fault, KeptOut, Stanza, Wish
from tests.simulation.life import DAY_S
from tests.simulation.rules import Rule, Violation
from tests.simulation.task_rules import NOT_SEE, SEE, Times

PING: Final = "/ping"
BLOCK: Final = "to block the agent"
UNBLOCK: Final = "to unblock the agent"
_BEGINS: Final = (BLOCK, NOT_SEE)
_ENDS: Final = {UNBLOCK: BLOCK, SEE: NOT_SEE}
_ANSWER_S: Final = 10.0
_AFTER_FAULT_S: Final = 700.0
"""Seconds for which a fault may have consequences: a service is started again after ten minutes."""
_AROUND_S: Final = 90.0
"""Seconds after a fault in which messages may be sent again."""
_ATTEMPTS: Final = 2
"""A notification is sent once more if no client has received it."""
_MOST_A_DAY: Final = 4
"""The same text may be said so often in a day, by different schedules for example."""
_NOTIFICATION: Final = "notification-"
"""How the id of a message with the result of an event begins; each result has its own."""


class NoNews:
    """Who has blocked the agent, or ended the subscription to its presence, and until when."""

    def __init__(self) -> None:
        self._causes: dict[str, set[str]] = defaultdict(set)
        self._until: dict[str, float] = {}

    def saw(self, entry: Entry) -> None:
        """Look at an entry."""
        if not isinstance(entry, Wish):
            return
        if entry.text in _BEGINS:
            self._causes[entry.who].add(entry.text)
        elif entry.text in _ENDS and _ENDS[entry.text] in self._causes[entry.who]:
            self._causes[entry.who].discard(_ENDS[entry.text])
            self._until[entry.who] = entry.at

    def since(self, who: str, at: float) -> bool:
        """Return whether somebody may have missed something since a time."""
        return bool(self._causes[who]) or self._until.get(who, -1.0) >= at


class Reached(Rule):
    """The agent answers at once, also who has blocked it before, and while others block it."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}
        self._faults = Times()

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.saw(entry)
            if entry.kind == "away":
                self._open.pop(entry.about, None)
        if stanza is None or not isinstance(entry, Stanza) or not stanza.tag.endswith("}message"):
            return
        who, body = entry.session.partition("/")[0], stanza.findtext("{*}body", "")
        if entry.way == "sent" and body == PING:
            self._open.setdefault(who, entry.at)
        elif entry.way == "received" and (body == "pong" or stanza.get("type") == "error"):
            self._check(who, entry.at)
            self._open.pop(who, None)

    def _check(self, who: str, at: float) -> None:
        asked = self._open.get(who)
        if asked is None or at <= asked + _ANSWER_S:
            return
        if not self._faults.within(asked - _AFTER_FAULT_S, asked + _ANSWER_S):
            raise Violation(f"{who} was answered {at - asked:.0f} s after {PING}")

    def at_rest(self) -> None:
        for who, asked in self._open.items():
            if not self._faults.within(asked - _AFTER_FAULT_S, asked + _ANSWER_S):
                raise Violation(f"{who} has no answer to {PING}")


class Repetitions(Rule):
    """What cannot be delivered is not sent again and again."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._faults: list[float] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.append(entry.at)
        if not isinstance(entry, KeptOut) or entry.cause != "blocks":
            return
        kept = ET.fromstring(entry.xml)
        if kept.tag.rpartition("}")[2] != "message" or kept.get("type") == "error":
            return
        if any(entry.at - _AROUND_S <= at <= entry.at for at in self._faults):
            return
        id_, body = kept.get("id", ""), kept.findtext("{*}body", "")
        if id_.startswith(_NOTIFICATION):
            body = ""  # several events may have the same result
        for name, most in ((id_, _ATTEMPTS), (body, _MOST_A_DAY)):
            times = self._times[entry.who, name]
            times.append(entry.at)
            while most == _MOST_A_DAY and times[0] < entry.at - DAY_S:
                times.pop(0)
            if name and len(times) > most:
                raise Violation(
                    f"{entry.who} blocks the agent, which sends again and again: {name}"
                )


class Presences(Rule):
    """Who is subscribed sees that the agent is there; who has ended that does not."""

    def __init__(self) -> None:
        self._sees: set[str] = set()
        self._wanted: dict[str, float] = {}
        """Who has asked for a subscription, and when."""
        self._unwanted: dict[str, float] = {}
        """Who has ended the subscription, and when."""
        self._ended: set[str] = set()
        """Those of them whom the agent has told that they do not see it any more."""
        self._faults = Times()

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.saw(entry)
        elif isinstance(entry, Wish) and entry.text == SEE:
            self._unwanted.pop(entry.who, None)
            self._ended.discard(entry.who)
            if entry.who not in self._sees:  # its server does not ask again
                self._wanted[entry.who] = entry.at
        elif isinstance(entry, Wish) and entry.text == NOT_SEE:
            self._wanted.pop(entry.who, None)
            self._sees.discard(entry.who)
            self._unwanted[entry.who] = entry.at
        elif stanza is not None and stanza.tag.endswith("}presence"):
            assert isinstance(entry, Stanza)
            if entry.way == "received" and stanza.get("from", "").partition("/")[0] == AGENT:
                self._presence(entry.session.partition("/")[0], entry.at, stanza.get("type"))

    def _presence(self, who: str, at: float, type_: str | None) -> None:
        if type_ is None and who in self._ended:
            raise Violation(f"{who} has ended the subscription, and sees the agent")
        if type_ is None:
            self._sees.add(who)
            self._wanted.pop(who, None)
        elif type_ == "unavailable" and who in self._unwanted:
            since = self._unwanted[who]
            if at < since + 1 and not self._faults.within(since - _AFTER_FAULT_S, at):
                self._ended.add(who)

    def at_rest(self) -> None:
        for who, asked in self._wanted.items():
            if not self._faults.within(asked - _AFTER_FAULT_S, asked + _ANSWER_S):
                raise Violation(f"{who} has subscribed, and does not see the agent")
