"""What happens in a simulated life, in order. Nothing else is known to the invariants."""

from collections.abc import Callable
from typing import Literal
from xml.etree import ElementTree as ET

import msgspec

from tests.kit.blocking import Cause


class Stanza(msgspec.Struct, frozen=True, tag=True):
    """A stanza that an account has sent or received, and the session that did so, as a full JID."""

    at: float
    session: str
    way: Literal["sent", "received"]
    xml: str


class Passing(msgspec.Struct, frozen=True, tag=True):
    """A stanza that one server sends to another one."""

    at: float
    sender: str
    receiver: str
    xml: str


class Effect(msgspec.Struct, frozen=True, tag=True):
    """Something that a skill has done outside.

    Attributes:
        label: names the request.
        step: what was done, such as "paid 5".
        key: the idempotency key that the skill was given.
    """

    at: float
    label: str
    step: str
    key: str


class Prompt(msgspec.Struct, frozen=True, tag=True):
    """What a model was asked, as one text.

    Attributes:
        usd: what the provider charges for the question.
        most_usd: the same, with the longest possible answer.
        day: the day (UTC) by the clock of the service.
        until: when the model answers.
    """

    at: float
    text: str
    usd: float = 0.0
    most_usd: float = 0.0
    day: str = ""
    until: float = 0.0


FaultKind = Literal[
    "kill",
    "stop",
    "start",
    "crash",
    "cut",
    "full",
    "healthy",
    "clock",
    "error",
    "away",
    "back",
    "peer",
]
"""What fails; `peer` is about another service than the first one, or the way to it."""


class Fault(msgspec.Struct, frozen=True, tag=True):
    """A fault, or the end of one."""

    at: float
    kind: FaultKind
    about: str = ""


class KeptOut(msgspec.Struct, frozen=True, tag=True):
    """A stanza that the server of an account does not deliver, because the account blocks who has
    sent it, or is away and nothing is kept for it.
    """

    at: float
    who: str
    xml: str
    cause: Cause = "blocks"


class Wish(msgspec.Struct, frozen=True, tag=True):
    """What somebody outside has decided to do: the cause of the stanzas that follow."""

    at: float
    who: str
    text: str


Entry = Stanza | Passing | KeptOut | Effect | Prompt | Fault | Wish


class History:
    """The entries, and who looks at each as it is added.

    Args:
        now: returns the simulated seconds since the beginning.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.entries: list[Entry] = []
        self.observers: list[Callable[[Entry], None]] = []
        self.now = now

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        self.entries.append(entry)
        for observer in self.observers:
            observer(entry)

    def fault(self, kind: FaultKind, about: str = "") -> None:
        """Add a fault."""
        self.add(Fault(self.now(), kind, about))

    def text(self, last: int = 0) -> str:
        """Return the entries as lines that a person reads; with `last`, only so many."""
        return "\n".join(map(line, self.entries[-last:]))


def line(entry: Entry) -> str:
    """Return an entry as a line."""
    days, rest = divmod(entry.at, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    when = f"day {days:.0f} {hours:02.0f}:{minutes:02.0f}:{seconds:06.3f}"
    return f"{when}  {_told(entry)}"


def _told(entry: Entry) -> str:
    match entry:
        case Stanza(session=session, way=way, xml=xml):
            arrow = "->" if way == "sent" else "<-"
            return f"{session} {arrow} {short(xml)}"
        case Passing(sender=sender, receiver=receiver, xml=xml):
            return f"{sender} => {receiver}: {short(xml)}"
        case KeptOut(who=who, xml=xml):
            return f"{who} does not get: {short(xml)}"
        case Effect(label=label, step=step, key=key):
            return f"EFFECT {label}: {step} (key {key[:8]})"
        case Prompt(text=text):
            return f"PROMPT … {text[-160:]!r}"
        case Fault(kind=kind, about=about):
            return f"*** {kind.upper()} {about}"
        case Wish(who=who, text=text):
            return f"{who} wants: {text}"


def short(xml: str) -> str:
    """Return a stanza in few words: its name, type, id, payloads and texts."""
    stanza = ET.fromstring(xml)
    parts = [stanza.tag.rpartition("}")[2]]
    parts += [stanza.attrib[name] for name in ("type", "id") if name in stanza.attrib]
    for child in stanza.iter():
        if child is stanza:
            continue
        name = child.tag.rpartition("}")[2]
        if name in _UNINTERESTING:
            continue
        values = " ".join(
            f"{key}={value}" for key, value in child.attrib.items() if key in _INTERESTING
        )
        text = (child.text or "").strip()
        parts.append(f"<{' '.join(filter(None, (name, values)))}>{text[:120]}")
    return " ".join(parts)


_UNINTERESTING = {"origin-id", "stanza-id", "thread", "hash", "active", "request", "markable"}
_INTERESTING = {"skill", "state", "id", "task", "revision", "value", "type", "var"}
