"""XEP-0513 Explicit Mentions."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload

NAMESPACE: Final = "urn:xmpp:mentions:0"


class Mention(Payload, frozen=True, kw_only=True):
    """A person who is mentioned, by an occupant id or an address (XEP-0513 §3.1), or a group of
    occupants, which ``group`` names (XEP-0513 §3.2).

    ``begin`` and ``end`` are the range of the body that is the name, as it is written: a range that
    cannot be read does not make the mention invalid.
    """

    xml = Name(NAMESPACE, "mention")

    occupant_id: Annotated[str | None, Attr("occupantid")] = None
    jid: Annotated[str | None, Attr()] = None
    group: Annotated[str | None, Attr("mentions")] = None
    begin: Annotated[str | None, Attr()] = None
    end: Annotated[str | None, Attr()] = None
