"""The availability that a presence shows (RFC 6121 §4.7.2.1)."""

from typing import Final, Literal, TypeAlias, cast

from xep.stanza import Incoming

Show: TypeAlias = Literal["online", "chat", "away", "xa", "dnd", "offline"]
"""`online` stands for a presence without `show`, `offline` for one that is unavailable."""
_SHOWN: Final = frozenset(("chat", "away", "xa", "dnd"))


def shown_by(stanza: Incoming) -> Show:
    """Return the availability that a presence shows."""
    if stanza.type == "unavailable":
        return "offline"
    show = (stanza.text_of("show") or "").strip()
    return cast("Show", show) if show in _SHOWN else "online"
