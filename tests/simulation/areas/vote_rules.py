"""Nothing is granted without two approvals of exactly that, and nothing after a denial."""

import re
from collections import Counter
from datetime import datetime
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from tests.kit.system import START
from tests.simulation.areas.room_rules import RoomRule
from tests.simulation.history import Effect, Entry, Fault, Stanza, Wish
from tests.simulation.life import CALLERS
from tests.simulation.room_service import AWAY, COUNCIL
from tests.simulation.rules import CONFIRM, LABEL, OPEN_S, TASK, Violation
from xep.muc import Affiliation

MEMBERS: Final[dict[str, Affiliation]] = {
    "juliet": "member",
    "romeo": "owner",
    "nurse": "member",
    "tybalt": "none",
}
NEED: Final = 2
_NAMED: Final = re.compile(r"@?Bot\S*\s*(yes|no) ([0-9a-f]{4,})")
_HANDLED_S: Final = 30.0
"""Seconds in which a vote is counted, unless something fails."""
_SHOWN_S: Final = 7200.0
"""Seconds after which the council has seen a question."""
_OVER: Final = ("completed", "failed", "rejected", "cancelled")
_ENDED: Final = ("Denied", "Expired", "Withdrawn")


class _Vote(msgspec.Struct):
    """A vote: `is_sure` says that nothing has kept the agent from counting it, `by_reaction` that
    it was a reaction, which can be taken back.
    """

    at: float
    who: str
    value: str
    is_sure: bool
    by_reaction: bool = False


class _Question(msgspec.Struct):
    """A question to the council.

    `is_approved` says that two may have approved it, `is_over` that it has ended otherwise, and
    `state` is what the room was shown last.
    """

    id: str
    task: str
    at: float
    until: float
    labels: frozenset[str]
    messages: set[str] = set()
    votes: list[_Vote] = []
    is_approved: bool = False
    is_over: bool = False
    state: str = ""


class Grants(RoomRule):
    """Whatever is granted was approved by two members, and by nobody who has asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self._questions: dict[str, _Question] = {}
        self._requesters: dict[str, str] = {}
        self._granted: Counter[str] = Counter()
        self._ended: set[str] = set()
        """The tasks that have ended, whatever became of their questions."""
        self._jump_s = 0.0
        self._now = self._fine_since = 0.0
        self._is_away = False

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        self._now = entry.at
        super().saw(entry, stanza)
        if isinstance(entry, Effect):
            if entry.step == "granted":
                self._check(entry.label)
        elif isinstance(entry, Wish):
            if match := re.search(r"\bgrant (r\d+)|(r[\d.]+) grant", entry.text):
                self._requesters[match[1] or match[2]] = entry.who.partition("@")[0]
        elif isinstance(entry, Fault):
            if match := re.match(r"jumps by (-?\d+)", entry.about):
                self._jump_s += int(match[1])
        elif isinstance(entry, Stanza) and stanza is not None:
            if entry.way == "received" and stanza.tag.endswith("message"):
                self._asked(stanza, entry.at)
                tasks = stanza.findall(f"{TASK}task")
                self._ended |= {one.get("id", "") for one in tasks if one.get("state") in _OVER}
            if stanza.get("type") == "groupchat":
                self._saw_message(entry, stanza)
            elif stanza.tag.endswith("iq") and entry.way == "sent":
                self._saw_decision(entry, stanza)

    def _saw_message(self, entry: Stanza, stanza: ET.Element) -> None:
        if entry.session == COUNCIL and entry.way == "received":
            self._said(stanza)
        elif (stanza.get("from") or "").startswith(COUNCIL):
            self._passed_on(stanza)
        elif entry.way == "sent" and stanza.get("to") == COUNCIL:
            self._voted(entry, stanza)

    # Questions.

    def _asked(self, stanza: ET.Element, at: float) -> None:
        """Note a question that somebody is asked."""
        confirm = stanza.find(f"{CONFIRM}confirm")
        if confirm is None or confirm.find(f"{CONFIRM}approvals") is None:
            return
        id_ = confirm.get("id", "")
        if id_ not in self._questions:
            labels = frozenset(LABEL.findall(" ".join(confirm.itertext())))
            expires = datetime.fromisoformat(confirm.findtext(f"{CONFIRM}expires", ""))
            # From here on, the wall clock does not matter.
            left = expires.timestamp() - START.timestamp() - at - self._jump_s
            self._questions[id_] = _Question(id_, confirm.get("task", ""), at, at + left, labels)

    def _said(self, stanza: ET.Element) -> None:
        """Note what the agent says to the council about a question."""
        id_, replaced = stanza.get("id", ""), stanza.find("{*}replace")
        if replaced is not None:
            for one in self._questions.values():
                if replaced.get("id") in (one.id, *one.messages):
                    self._changed(one, id_, stanza.findtext("{*}body", "").splitlines()[-1])
        elif (confirm := stanza.find(f"{CONFIRM}confirm")) is not None:
            self._questions[confirm.get("id", "")].messages.add(id_)

    def _changed(self, one: _Question, id_: str, state: str) -> None:
        one.messages.add(id_)
        if one.is_over and not state.startswith(_ENDED):
            raise Violation(f"a question was {one.state}, and is then: {state}")
        one.state, one.is_over = state, state.startswith(_ENDED)

    def _passed_on(self, stanza: ET.Element) -> None:
        """Note the id that the room has given to a message of the agent."""
        for one in self._questions.values():
            if stanza.get("id") in one.messages:
                one.messages |= {each.get("id", "") for each in stanza.findall("{*}stanza-id")}

    # Votes.

    def _voted(self, entry: Stanza, stanza: ET.Element) -> None:
        reactions, reply = stanza.find("{*}reactions"), stanza.find("{*}reply")
        text, about, value = stanza.findtext("{*}body", ""), "", ""
        if reactions is not None:
            about, value = reactions.get("id", ""), "".join(reactions.itertext())
            value = {"\N{THUMBS UP SIGN}": "yes", "\N{THUMBS DOWN SIGN}": "no"}.get(value, "back")
        elif reply is not None and text in ("yes", "no"):
            about, value = reply.get("id", ""), text
        found = [one for one in self._questions.values() if about in one.messages]
        if named := _NAMED.fullmatch(text):
            value = named[1]
            found = [one for one in self._questions.values() if one.id.startswith(named[2])]
        who = entry.session.partition("@")[0]
        is_sure = bool(self.own[COUNCIL]) and not self.is_ill and len(found) == 1
        for one in found:
            vote = _Vote(entry.at, who, value, is_sure, by_reaction=reactions is not None)
            self._count(one, vote)

    def _saw_decision(self, entry: Stanza, stanza: ET.Element) -> None:
        decision = stanza.find(f"{CONFIRM}decision")
        one = None if decision is None else self._questions.get(decision.get("id", ""))
        if one is not None and decision is not None:
            who = entry.session.partition("@")[0]
            value = "yes" if decision.get("value") == "approve" else "no"
            self._count(one, _Vote(entry.at, who, value, is_sure=False))

    def _count(self, one: _Question, vote: _Vote) -> None:
        has_asked = any(self._requesters.get(label) == vote.who for label in one.labels)
        if has_asked or MEMBERS.get(vote.who, "none") == "none":
            return
        one.votes.append(vote)
        if vote.value != "yes" or vote.at > one.until + 1:
            return
        before = [each for each in one.votes if each.is_sure and vote.at - each.at > _HANDLED_S]
        if any(each.value == "no" for each in before):
            return  # it was denied
        people = {each.who for each in one.votes if each.value == "yes"}
        for who in set(people):
            mine = [each for each in one.votes if each.who == who]
            last = max((each for each in mine if each.value == "yes"), key=lambda each: each.at)
            back = [each.at for each in before if each.who == who and each.value == "back"]
            if last.by_reaction and any(at > last.at for at in back):
                people.discard(who)
        one.is_approved = one.is_approved or len(people) >= NEED

    def _look(self, now: float) -> None:
        """Check that the council has seen the questions that it could see for some time: those of
        programs, because others may have been stopped.
        """
        began, self._fine_since = self._fine_since, now
        if not self.own[COUNCIL] or self.is_muted[COUNCIL] or self._is_away or self.is_ill:
            return
        for one in self._questions.values():
            has_votes = one.votes or any(self._granted[label] for label in one.labels)
            of_program = all(self._requesters.get(label) in CALLERS for label in one.labels)
            is_known = one.messages or has_votes or not of_program or one.task in self._ended
            if not is_known and min(now, one.until) - max(began, one.at) > _SHOWN_S:
                raise Violation(f"the council does not see the question {one.id}: {one.labels}")

    def entered(self, room: str) -> None:
        if room == COUNCIL:
            self._fine_since = self._now

    def broke(self, fault: Fault) -> None:
        self._look(fault.at)
        if fault.about.startswith(AWAY):
            self._is_away = True
        elif fault.about == "the rooms":
            self._is_away = False
        for one in self._questions.values():
            for vote in one.votes[-9:]:
                vote.is_sure = vote.is_sure and fault.at - vote.at > _HANDLED_S

    def out(self, room: str) -> None:
        if room == COUNCIL:
            self._fine_since = self._now
            for one in self._questions.values():
                for vote in one.votes[-1:]:
                    vote.is_sure = False

    def _check(self, label: str) -> None:
        self._granted[label] += 1
        approved = [
            one.id
            for one in self._questions.values()
            if label in one.labels and one.is_approved and not one.is_over
        ]
        if len(approved) < self._granted[label]:
            raise Violation(
                f"{label} was granted {self._granted[label]} times, approved: {approved}"
            )

    def at_rest(self) -> None:
        self._look(self._now)
        for one in self._questions.values():
            is_open = one.at > self._now - OPEN_S
            if one.messages and not is_open and not one.state.startswith(("Approved", *_ENDED)):
                raise Violation(f"the council does not know what became of {one.id}: {one.state}")
