"""XEP-0439 Quick Response: buttons beneath a message. Deferred by the XSF, and in use."""

from typing import Annotated, Final

from xep.binding import Attr, Lang, Name, Payload

NAMESPACE: Final = "urn:xmpp:tmp:quick-response"


class Response(Payload, frozen=True, kw_only=True):
    """A text that the client sends as a message body after one click (XEP-0439 §4.1).

    The reply is a plain message: nothing in it says which question it answers.
    """

    xml = Name(NAMESPACE, "response")

    value: Annotated[str, Attr()]
    label: Annotated[str | None, Attr()] = None
    lang: Lang = None


class Action(Payload, frozen=True, kw_only=True):
    """An action that the user can choose with one click; the client returns its ``id`` (XEP-0439
    §4.2).
    """

    xml = Name(NAMESPACE, "action")

    id: Annotated[str, Attr()]
    label: Annotated[str | None, Attr()] = None
    lang: Lang = None


class ActionSelected(Payload, frozen=True, kw_only=True):
    """The action that was chosen, in a message without a body (XEP-0439 §4.3)."""

    xml = Name(NAMESPACE, "action-selected")

    id: Annotated[str, Attr()]
