"""Messages that only report or show a state: they have no text for a person, and are not
returned.
"""

from typing import Final

from xep import chat_markers, delay, hints, receipts, stanza_ids
from xep.chat_states import NAMESPACE as CHAT_STATES
from xep.stanza import NAMESPACE as STANZAS
from xep.stanza import Incoming

STATES: Final = tuple(
    f"{{{CHAT_STATES}}}{state}" for state in ("active", "composing", "gone", "inactive", "paused")
)
"""The elements of XEP-0085."""
_SAYS_NOTHING: Final = frozenset(
    (
        f"{{{STANZAS}}}thread",
        *STATES,
        receipts.Received.xml.tag,
        chat_markers.Displayed.xml.tag,
        delay.Delay.xml.tag,
        hints.NoStore.xml.tag,
        hints.Store.xml.tag,
        stanza_ids.OriginId.xml.tag,
        stanza_ids.StanzaId.xml.tag,
    )
)


def says_nothing(stanza: Incoming) -> bool:
    """Return whether a message only shows a chat state or reports that another one has arrived."""
    return _SAYS_NOTHING.issuperset(stanza.child_names)
