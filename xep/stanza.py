"""Stanzas (RFC 6120 §8): inbound ones are decoded on demand, outbound ones encoded as XML text."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias, TypeVar, cast
from xml.etree.ElementTree import Element

import msgspec

from xep.binding import ContentError, Payload, decode, encode
from xep.binding.decoder import Decoder, decoder_for
from xep.binding.escaping import escape_attribute, escape_text
from xep.binding.raw import write
from xep.jid import JID
from xep.language import language_tag
from xep.stanza_error import StanzaError

NAMESPACE: Final = "jabber:client"
"""The only content namespace that stanzas have above the stream, whatever the stream's own is."""

StanzaKind = Literal["iq", "message", "presence"]
P = TypeVar("P", bound=Payload)
_Class: TypeAlias = type[P]  # where `type` is an attribute

_KINDS: Final[Mapping[str, StanzaKind]] = {
    f"{{{NAMESPACE}}}iq": "iq",
    f"{{{NAMESPACE}}}message": "message",
    f"{{{NAMESPACE}}}presence": "presence",
}
_OWN: Final = f"{{{NAMESPACE}}}"
_ERROR: Final = f"{{{NAMESPACE}}}error"
_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"
_XHTML_BLOCKS: Final = frozenset(
    f"{{http://www.w3.org/1999/xhtml}}{name}" for name in ("blockquote", "br", "div", "li", "p")
)
_DEFAULT_TYPES: Final = {"message": "normal", "presence": "available"}


# A Struct, because there is one for each stanza: the garbage collector does not track it, and it is
# never part of a cycle.
class Incoming(msgspec.Struct, gc=False, eq=False):
    """An inbound stanza: its head is parsed, its payloads are decoded on demand.

    Made by `of`.

    Attributes:
        size: bytes of the stanza on the stream.
        kind: iq, message or presence; None for any other first-level element.
        type: the ``type`` attribute; for a message without one ``normal``, for a presence
            without one ``available``, for an IQ without one the empty string.
        id: the ``id`` attribute.
        sender: the ``from`` attribute, byte for byte as the server delivered it.
        to: the ``to`` attribute, likewise.
        lang: ``xml:lang`` of the stanza; None also for an invalid language tag.
        sole_child: the name of the only child, as an IQ get or set must have one (RFC 6120
            §8.2.3); None when there is none or more than one.
    """

    _element: Element
    size: int
    kind: StanzaKind | None
    type: str
    id: str | None
    sender: str | None
    to: str | None
    lang: str | None
    sole_child: str | None

    @staticmethod
    def of(element: Element, size: int) -> "Incoming":
        """Return the stanza that is an element of this many bytes."""
        kind = _KINDS.get(element.tag)
        get = element.attrib.get
        lang = get(_LANG)
        return Incoming(
            element,
            size,
            kind,
            get("type") or _DEFAULT_TYPES.get(kind or "", ""),
            get("id"),
            get("from"),
            get("to"),
            None if lang is None else language_tag(lang),
            element[0].tag if len(element) == 1 else None,
        )

    @property
    def name(self) -> str:
        """The stanza's own element name in Clark notation."""
        return self._element.tag

    @property
    def payload_names(self) -> list[str]:
        """Return the names of the children in Clark notation, without ``<error/>`` and those of the
        RFC.
        """
        # The whole name is compared: a namespace may contain a brace, and begin like another one.
        return [each.tag for each in self._element if each.tag.rpartition("}")[0] != _OWN[:-1]]

    @property
    def child_names(self) -> list[str]:
        """Return the names of all children in Clark notation, including those of the RFC."""
        return [child.tag for child in self._element]

    def texts_of(self, local: str) -> list[str]:
        """Return the texts of all children of that name in the stanza's own namespace, one per
        language.
        """
        return [child.text or "" for child in self._element.findall(_OWN + local)]

    def sole_payload(self, cls: _Class[P]) -> P:
        """Return the only child, decoded as ``cls``; the caller has checked its name,
        ``sole_child``.

        Raises:
            ContentError: it does not match its declaration.
        """
        return cast("P", decoder_for(cls)(self._element[0]))

    def sole_decoded(self, decode: Decoder) -> Payload:
        """Return the only child, decoded by a decoder from ``decoder_for``."""
        payload: Payload = decode(self._element[0])
        return payload

    def payload(self, cls: _Class[P], *, strict: bool = False) -> P | None:
        """Return the first child that is a ``cls``; None when there is none.

        Raises:
            ContentError: it does not match its declaration.
        """
        child = self._element.find(cls.xml_tag)
        return None if child is None else decode(cls, child, strict=strict)

    def payloads(self, cls: _Class[P]) -> list[P]:
        """Return all children that are a ``cls``; those that do not match its declaration are left
        out.
        """
        found = []
        for child in self._element.findall(cls.xml_tag):
            with contextlib.suppress(ContentError):
                found.append(decode(cls, child))
        return found

    def require(self, cls: _Class[P]) -> P:
        """Return the first child that is a ``cls``.

        Raises:
            ContentError: it is missing, or does not match its declaration.
        """
        found = self.payload(cls)
        if found is None:
            raise ContentError(self.kind or "stanza", f"<{cls.xml.local}/> is missing")
        return found

    def text_of(self, local: str, lang: str | None = None) -> str | None:
        """Return the text of a child in the stanza's own namespace, such as ``body`` or ``thread``.

        Of several that are not empty, the one in ``lang`` is preferred, then one in a language with
        a common range (RFC 4647), such as ``de-DE`` for ``de``, then one without a language, then
        the first (RFC 6121 §5.2.3).
        """
        found = self._element.findall(_OWN + local)
        if not found:
            return None
        if len(found) > 1:
            found = [child for child in found if (child.text or "").strip()] or found
            found.sort(key=lambda child: _distance(lang, child.get(_LANG)))
        return found[0].text or ""

    def inner_text(self, name: str) -> str:
        """Return all text inside the first child of that name in Clark notation, without tags.

        A line ends where a block element of XHTML does, or a line break is.
        """
        child = self._element.find(name)
        return "" if child is None else "".join(_texts(child))

    def error(self, known: tuple[_Class[Payload], ...] = ()) -> StanzaError:
        """Return the error of a stanza of type ``error``."""
        return StanzaError.of(self._element.find(_ERROR), known)

    def forward(self, *, from_: str | None = None, to: str | None = None) -> str:
        """Return the whole stanza as XML text again, to route it on (RFC 6120 §10).

        Its content does not change; ``from_`` and ``to`` replace the addresses if given.
        """
        given = {"from": from_, "to": to}
        changed = {name: address for name, address in given.items() if address is not None}
        return write(self._element, NAMESPACE, self._element.attrib | changed)


def _texts(root: Element) -> Iterator[str]:
    """Yield the texts in an element, and the ends of its lines."""
    waiting: list[str | Element] = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
            continue
        after = "\n" if each.tag in _XHTML_BLOCKS else ""
        waiting.append(after + ((each.tail or "") if each is not root else ""))
        waiting.extend(reversed(each))
        yield each.text or ""


def _distance(wanted: str | None, language: str | None) -> int:
    """Return how far a language is from the wanted one: 0 if it is the same, a larger number for
    one with a shorter common range.
    """
    if language is None:
        return 0 if wanted is None else 1_000
    if wanted is None:
        return 2_000
    ours, theirs = wanted.lower().split("-"), language.lower().split("-")
    common = min(len(ours), len(theirs))
    return len(ours) + len(theirs) - 2 * common if ours[:common] == theirs[:common] else 2_000


Address = JID | str


def _written(address: Address) -> str:
    return address if isinstance(address, str) else address.on_wire()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send (RFC 6121 §5).

    ``body`` and ``thread`` are the RFC's; everything else goes in ``payloads``.
    """

    to: Address
    from_: Address
    type: Literal["chat", "error", "groupchat", "headline", "normal"] = "normal"
    id: str | None = None
    lang: str | None = None
    body: str | None = None
    subject: str | None = None
    thread: str | None = None
    payloads: tuple[Payload, ...] = ()
    error: StanzaError | None = None

    def encode(self) -> str:
        """Return the XML text. Raises EncodingError when a value cannot be encoded."""
        content = ""
        for name, text in (("subject", self.subject), ("body", self.body), ("thread", self.thread)):
            if text is not None:
                content += f"<{name}>{escape_text(text)}</{name}>"
        return _stanza("message", self, content, self.payloads)


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """A presence to send (RFC 6121 §4, §3). ``type`` None is available presence."""

    to: Address | None = None
    from_: Address
    type: (
        Literal[
            "error",
            "probe",
            "subscribe",
            "subscribed",
            "unavailable",
            "unsubscribe",
            "unsubscribed",
        ]
        | None
    ) = None
    id: str | None = None
    show: Literal["away", "chat", "dnd", "xa"] | None = None
    status: str | None = None
    payloads: tuple[Payload, ...] = ()
    error: StanzaError | None = None

    def encode(self) -> str:
        """Return the XML text. Raises EncodingError when a value cannot be encoded."""
        content = "" if self.show is None else f"<show>{self.show}</show>"
        if self.status is not None:
            content += f"<status>{escape_text(self.status)}</status>"
        return _stanza("presence", self, content, self.payloads)


class IQ(msgspec.Struct, frozen=True, kw_only=True):
    """An IQ to send (RFC 6120 §8.2.3). A ``result`` may be without a payload."""

    type: Literal["get", "set", "result", "error"]
    id: str
    to: Address
    from_: Address
    payload: Payload | None = None
    error: StanzaError | None = None

    def encode(self) -> str:
        """Return the XML text. Raises EncodingError when a value cannot be encoded."""
        return _stanza("iq", self, "", () if self.payload is None else (self.payload,))


def _stanza(
    name: str, stanza: Message | Presence | IQ, content: str, payloads: tuple[Payload, ...]
) -> str:
    xml = f"<{name} from='{escape_attribute(_written(stanza.from_))}'"
    if stanza.to is not None:
        xml += f" to='{escape_attribute(_written(stanza.to))}'"
    if stanza.type is not None:
        xml += f" type='{stanza.type}'"
    if stanza.id is not None:
        xml += f" id='{escape_attribute(stanza.id)}'"
    if isinstance(stanza, Message) and stanza.lang is not None:
        xml += f" xml:lang='{escape_attribute(stanza.lang)}'"
    for payload in payloads:
        content += encode(payload, NAMESPACE)
    if stanza.error is not None:
        content += stanza.error.encode()
    return f"{xml}>{content}</{name}>" if content else xml + "/>"
