"""XEP-0050 Ad-Hoc Commands."""

from typing import Annotated, Final, Literal

from xep.binding import Attr, Child, Flag, Lang, Name, Payload, Text
from xep.data_forms import Form

NAMESPACE: Final = "http://jabber.org/protocol/commands"
"""Also the disco node at which commands are items."""


class Actions(Payload, frozen=True, kw_only=True):
    """What may be done next; ``execute`` is what plain ``execute`` stands for (XEP-0050 §3.4)."""

    xml = Name(NAMESPACE, "actions")

    execute: Annotated[Literal["prev", "next", "complete"] | None, Attr()] = None
    prev: Annotated[bool, Flag()] = False
    next: Annotated[bool, Flag()] = False
    complete: Annotated[bool, Flag()] = False


class Note(Payload, frozen=True, kw_only=True):
    """A line for the person who runs the command (XEP-0050 §3.5)."""

    xml = Name(NAMESPACE, "note")

    type: Annotated[Literal["info", "warn", "error"], Attr()] = "info"
    text: Annotated[str, Text()] = ""


class Command(Payload, frozen=True, kw_only=True):
    """One stage of a command (XEP-0050 §4): ``action`` in requests, ``status`` in answers."""

    xml = Name(NAMESPACE, "command")

    node: Annotated[str, Attr()]
    sessionid: Annotated[str | None, Attr()] = None
    action: Annotated[Literal["execute", "cancel", "prev", "next", "complete"] | None, Attr()] = (
        None
    )
    status: Annotated[Literal["executing", "completed", "canceled"] | None, Attr()] = None
    actions: Annotated[Actions | None, Child()] = None
    notes: Annotated[tuple[Note, ...], Child()] = ()
    form: Annotated[Form | None, Child()] = None
    lang: Lang = None


class MalformedAction(Payload, frozen=True, kw_only=True):
    """The action is not understood: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "malformed-action")


class BadAction(Payload, frozen=True, kw_only=True):
    """The action cannot be had at this stage: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-action")


class BadLocale(Payload, frozen=True, kw_only=True):
    """The language asked for cannot be had: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-locale")


class BadPayload(Payload, frozen=True, kw_only=True):
    """The form does not fit: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-payload")


class BadSessionId(Payload, frozen=True, kw_only=True):
    """There is no such session: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-sessionid")


class SessionExpired(Payload, frozen=True, kw_only=True):
    """The session was there once: with ``not-allowed`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "session-expired")


CONDITIONS: Final[tuple[type[Payload], ...]] = (
    MalformedAction,
    BadAction,
    BadLocale,
    BadPayload,
    BadSessionId,
    SessionExpired,
)
"""Every condition, as ``StanzaError.of`` wants to know them."""
