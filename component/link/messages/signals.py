"""Messages that only report or show a state, and the availability that a presence shows."""

from typing import Final, Literal, TypeAlias, cast

from xep import chat_markers, delay, receipts, stanza_ids
from xep.chat_states import NAMESPACE as CHAT_STATES
from xep.stanza import NAMESPACE as STANZAS
from xep.stanza import Incoming

STATES: Final = tuple(
    f"{{{CHAT_STATES}}}{state}" for state in ("active", "composing", "gone", "inactive", "paused")
)
"""The elements of XEP-0085."""
HINTS: Final = (
    "{urn:xmpp:carbons:2}private",
    *(
        f"{{urn:xmpp:hints}}{hint}"
        for hint in ("no-copy", "no-permanent-store", "no-storage", "no-store", "store")
    ),
)
"""The elements that say how servers store and copy a message (XEP-0334, XEP-0280 §6.1); no-storage
is in no version of XEP-0334, but Conversations and Monal send it.
"""
_SAYS_NOTHING: Final = frozenset(
    (
        f"{{{STANZAS}}}thread",
        *STATES,
        *HINTS,
        # What came before chat states and receipts (XEP-0022).
        "{jabber:x:event}x",
        # For the other clients of the reader (XEP-0490).
        "{urn:xmpp:mds:displayed:0}displayed",
        receipts.Received.xml.tag,
        chat_markers.Acknowledged.xml.tag,
        chat_markers.Displayed.xml.tag,
        chat_markers.Received.xml.tag,
        delay.Delay.xml.tag,
        delay.LegacyDelay.xml.tag,
        stanza_ids.OriginId.xml.tag,
        stanza_ids.StanzaId.xml.tag,
    )
)


def says_nothing(stanza: Incoming) -> bool:
    """Return whether a message only shows a chat state or reports that another one has arrived."""
    return _SAYS_NOTHING.issuperset(stanza.child_names)


Show: TypeAlias = Literal["online", "chat", "away", "xa", "dnd", "offline"]
"""`online` stands for a presence without `show`, `offline` for one that is unavailable."""
_SHOWN: Final = frozenset(("chat", "away", "xa", "dnd"))


def shown_by(stanza: Incoming) -> Show:
    """Return the availability that a presence shows."""
    if stanza.type == "unavailable":
        return "offline"
    show = (stanza.text_of("show") or "").strip()
    return cast("Show", show) if show in _SHOWN else "online"
