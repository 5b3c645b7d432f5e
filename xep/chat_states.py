"""XEP-0085 Chat State Notifications."""

from typing import Final, TypeAlias

from xep.binding import Name, Payload

NAMESPACE: Final = "http://jabber.org/protocol/chatstates"


class Active(Payload, frozen=True, kw_only=True):
    """The sender follows the conversation; sent together with content (XEP-0085 §5.1)."""

    xml = Name(NAMESPACE, "active")


class Composing(Payload, frozen=True, kw_only=True):
    """The sender is writing (XEP-0085 §5.2)."""

    xml = Name(NAMESPACE, "composing")


class Paused(Payload, frozen=True, kw_only=True):
    """The sender was writing and has stopped (XEP-0085 §5.2)."""

    xml = Name(NAMESPACE, "paused")


ChatState: TypeAlias = Active | Composing | Paused
