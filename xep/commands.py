"""XEP-0050 Ad-Hoc Commands."""

from typing import Annotated, Final, Literal

from xep.binding import Attr, Child, Flag, Lang, Name, Payload, Text
from xep.data_forms import Form

NAMESPACE: Final = "http://jabber.org/protocol/commands"
"""Also the disco node whose items are the commands."""


class Actions(Payload, frozen=True, kw_only=True):
    """The allowed next actions; ``execute`` names the default one (XEP-0050 §3.4).

    It is any text: some clients send back an empty one.
    """

    xml = Name(NAMESPACE, "actions")

    execute: Annotated[str | None, Attr()] = None
    prev: Annotated[bool, Flag()] = False
    next: Annotated[bool, Flag()] = False
    complete: Annotated[bool, Flag()] = False


class Note(Payload, frozen=True, kw_only=True):
    """A line for the person who runs the command (XEP-0050 §3.5)."""

    xml = Name(NAMESPACE, "note")

    type: Annotated[Literal["info", "warn", "error"], Attr()] = "info"
    text: Annotated[str, Text()] = ""


class Command(Payload, frozen=True, kw_only=True):
    """One stage of a command (XEP-0050 §4): ``action`` in requests, ``status`` in answers.

    Both are any text: some clients send an empty action, or a status in a request.
    """

    xml = Name(NAMESPACE, "command")

    node: Annotated[str, Attr()]
    sessionid: Annotated[str | None, Attr()] = None
    action: Annotated[str | None, Attr()] = None
    status: Annotated[str | None, Attr()] = None
    actions: Annotated[Actions | None, Child()] = None
    notes: Annotated[tuple[Note, ...], Child()] = ()
    form: Annotated[Form | None, Child()] = None
    lang: Lang = None


class MalformedAction(Payload, frozen=True, kw_only=True):
    """The action is unknown: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "malformed-action")


class BadAction(Payload, frozen=True, kw_only=True):
    """The action is not possible at this stage: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-action")


class BadLocale(Payload, frozen=True, kw_only=True):
    """The requested language is not available: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-locale")


class BadPayload(Payload, frozen=True, kw_only=True):
    """The form is invalid: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-payload")


class BadSessionId(Payload, frozen=True, kw_only=True):
    """The session never existed: with ``bad-request`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "bad-sessionid")


class SessionExpired(Payload, frozen=True, kw_only=True):
    """The session has expired: with ``not-allowed`` (XEP-0050 §4.4)."""

    xml = Name(NAMESPACE, "session-expired")


CONDITIONS: Final[tuple[type[Payload], ...]] = (
    MalformedAction,
    BadAction,
    BadLocale,
    BadPayload,
    BadSessionId,
    SessionExpired,
)
"""All conditions, for ``StanzaError.of``."""
