"""What must hold when people correct and retract messages (XEP-0308, XEP-0424)."""

import re
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from tests.simulation.areas.chat import RECEIVED, Replies
from tests.simulation.history import Effect, Entry, Fault, Prompt, Stanza
from tests.simulation.rules import CONFIRM, Rule, Violation

REVISES: Final = ("{urn:xmpp:message-correct:0}replace", "{urn:xmpp:message-retract:1}retract")
_LATE: Final = re.compile(r"came too late|retracted your message too late|taken that as an answer")
_FAULT: Final = "an error on my side"
_MARK: Final = re.compile(r"\bsecret-[a-z]+-(\d+)-(\d+)\b")
_ANSWERED: Final = re.compile(r"re ((?:\w+(?:\.\w+)?, )*\w+(?:\.\w+)?):")
_TOLD_S: Final = 5.0
"""Seconds within which the agent says that a revision came too late."""
_AT_ONCE_S: Final = 0.05
"""Seconds around a receipt in which a fault may cause that nobody hears what follows it."""


def message_of(label: str) -> str:
    """Return the name of a message, which all versions of it have."""
    return label.partition(".v")[0]


class Revision(NamedTuple):
    """A message that replaces a version of another one: its id, and the label of that version."""

    id: str
    label: str


def revision_in(stanza: ET.Element) -> Revision | None:
    """Return the revision that a message is; its id names the version that it replaces."""
    if all(stanza.find(name) is None for name in REVISES):
        return None
    id_ = stanza.get("id", "")
    found = re.fullmatch(r"\w+-(c\d+)-revision-(\d+)", id_)
    return None if found is None else Revision(id_, f"{found[1]}.v{int(found[2]) - 1}")


class Revised(Rule):
    """What the agent has confirmed to be corrected or retracted is not carried out, asked about,
    answered, or shown to a model.
    """

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str], str] = {}
        """The label that each revision replaces, by its sender and its id."""
        self._gone: dict[str, tuple[str, float]] = {}
        """The versions that are replaced: whose they are, and since when."""
        self._done: dict[str, str] = {}
        """What was done nevertheless."""
        self._questions: set[str] = set()
        self._faults: list[float] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.append(entry.at)
        elif isinstance(entry, Effect):
            self._check(entry.label, entry.at, f"was done: {entry.step}")
        elif isinstance(entry, Prompt):
            for number, version in _MARK.findall(entry.text):
                self._check(f"c{number}.v{version}", entry.at, "was shown to a model")
        elif isinstance(entry, Stanza) and stanza is not None and stanza.tag.endswith("}message"):
            self._message(entry, stanza)

    def _message(self, entry: Stanza, stanza: ET.Element) -> None:
        who = entry.session.partition("/")[0]
        if entry.way == "sent":
            if (revision := revision_in(stanza)) is not None:
                self._sent[who, revision.id] = revision.label
            return
        received = stanza.find(RECEIVED)
        if received is not None:
            label = self._sent.pop((who, received.get("id", "")), None)
            if label is not None:
                self._gone.setdefault(label, (who, entry.at))
        elif stanza.find("{urn:xmpp:delay}delay") is None and stanza.get("type") != "error":
            self._hears(who, entry.at, stanza)

    def _hears(self, who: str, at: float, stanza: ET.Element) -> None:
        body = stanza.findtext("{*}body", "")
        if _LATE.search(body) or _FAULT in body:
            for label, (whose, since) in list(self._gone.items()):
                if whose == who and since > at - _TOLD_S:
                    del self._gone[label]
                    self._done.pop(label, None)
        for labels in _ANSWERED.findall(body):
            for label in labels.split(", "):
                self._check(label, at, "was answered")
        confirm = stanza.find(f"{CONFIRM}confirm")
        if confirm is not None and confirm.get("id", "") not in self._questions:
            self._questions.add(confirm.get("id", ""))
            action = confirm.find(f"{CONFIRM}action")
            for label in () if action is None else action.itertext():
                self._check(label.strip(), at, "was asked about")

    def _check(self, label: str, at: float, what: str) -> None:
        if label not in self._gone:
            return
        who, since = self._gone[label]
        if not any(since - _AT_ONCE_S <= fault <= since + _AT_ONCE_S for fault in self._faults):
            said = f"{label} of {who} was revised, and {at - since:.3f} s later it {what}"
            self._done.setdefault(label, said)
            if at > since + _TOLD_S:
                raise Violation(said)

    def at_rest(self) -> None:
        for said in self._done.values():
            raise Violation(said)


class RevisedReplies(Replies):
    """Every message is answered, in one of its versions, bounced or reported, unless it was
    retracted or lost on its way.
    """

    letter = "c"

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        is_message = stanza is not None and stanza.tag.endswith("}message")
        if is_message and isinstance(entry, Stanza) and stanza is not None:
            who = entry.session.partition("/")[0]
            revision = revision_in(stanza)
            if entry.way == "sent" and revision is not None:
                if stanza.find(REVISES[1]) is not None:
                    self._open.pop((who, message_of(revision.label)), None)
                return  # the first version is open
            if entry.way == "received" and _LATE.search(stanza.findtext("{*}body", "")):
                return  # about a revision
        super().saw(entry, stanza)

    def name(self, label: str) -> str:
        return message_of(label)


class OneAnswer(Rule):
    """Two versions of a message do not get two answers."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, str]] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if stanza is None or not isinstance(entry, Stanza) or entry.way != "received":
            return
        id_ = stanza.get("id", "")
        for labels in _ANSWERED.findall(stanza.findtext("{*}body", "")):
            for label in labels.split(", "):
                if not label.startswith("c"):
                    continue
                known, before = self._answers.setdefault(message_of(label), (id_, label))
                if known != id_ and before != label:
                    raise Violation(f"{before} was answered, and {label}, which replaces it, too")
