"""XEP-0030 Service Discovery, with the forms of XEP-0128."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Lang, Name, Payload
from xep.data_forms import Form
from xep.jid import JID
from xep.result_sets import ResultSet

INFO: Final = "http://jabber.org/protocol/disco#info"
ITEMS: Final = "http://jabber.org/protocol/disco#items"


class Identity(Payload, frozen=True, kw_only=True):
    """An identity of an entity (XEP-0030 §3.1), such as category ``client``, type ``bot``."""

    xml = Name(INFO, "identity")

    category: Annotated[str, Attr()]
    type: Annotated[str, Attr()]
    name: Annotated[str | None, Attr()] = None
    lang: Lang = None


class Feature(Payload, frozen=True, kw_only=True):
    """A protocol that an entity supports (XEP-0030 §3.1), usually by its namespace."""

    xml = Name(INFO, "feature")

    var: Annotated[str, Attr()]


class InfoQuery(Payload, frozen=True, kw_only=True):
    """A query for identities and features, and its answer (XEP-0030 §3). The answer repeats the
    requested ``node``.

    ``forms`` extend the answer (XEP-0128 §2). An invalid one is left out, because the rest is still
    valid; a hash over the rest (XEP-0115) will then not match.
    """

    xml = Name(INFO, "query")

    node: Annotated[str | None, Attr()] = None
    identities: Annotated[tuple[Identity, ...], Child()] = ()
    features: Annotated[tuple[Feature, ...], Child()] = ()
    forms: Annotated[tuple[Form, ...], Child(malformed="drop")] = ()


class Item(Payload, frozen=True, kw_only=True):
    """An item of an entity (XEP-0030 §4.1): an address, or a node at one."""

    xml = Name(ITEMS, "item")

    jid: Annotated[JID, Attr()]
    node: Annotated[str | None, Attr()] = None
    name: Annotated[str | None, Attr()] = None


class ItemsQuery(Payload, frozen=True, kw_only=True):
    """A query for items, and its answer (XEP-0030 §4), in pages (XEP-0059).

    An item without a usable address cannot be queried, so it is left out.
    """

    xml = Name(ITEMS, "query")

    node: Annotated[str | None, Attr()] = None
    items: Annotated[tuple[Item, ...], Child(malformed="drop")] = ()
    page: Annotated[ResultSet | None, Child()] = None
