"""Stanzas (RFC 6120 §8): what arrives, decoded as far as asked, and what is sent, as XML text."""

from collections.abc import Mapping
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
"""The one content namespace that stanzas have above the stream, whatever the stream's own is."""

Kind = Literal["iq", "message", "presence"]
P = TypeVar("P", bound=Payload)
_Class: TypeAlias = type[P]  # where `type` is an attribute

_KINDS: Final[Mapping[str, Kind]] = {
    f"{{{NAMESPACE}}}iq": "iq",
    f"{{{NAMESPACE}}}message": "message",
    f"{{{NAMESPACE}}}presence": "presence",
}
_OWN: Final = f"{{{NAMESPACE}}}"
_ERROR: Final = f"{{{NAMESPACE}}}error"
_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"
_HEAD: Final = ("type", "id", "from", "to", _LANG)
_DEFAULT_TYPES: Final = {"message": "normal", "presence": "available"}


# A Struct, because there is one for each stanza: it costs the garbage collector nothing, and is no
# part of a cycle.
class Incoming(msgspec.Struct, gc=False, eq=False):
    """A stanza as it arrived: its head read, its payloads decoded when asked for.

    Made of the element and its size alone; the rest is read from the element.

    Attributes:
        size: bytes the stanza took on the stream.
        kind: iq, message or presence; None for any other first-level element.
        type: the ``type`` attribute; for a message without one ``normal``, for a presence
            without one ``available``, for an IQ without one the empty string.
        id: the ``id`` attribute.
        sender: the ``from`` attribute, byte for byte as the server passed it.
        to: the ``to`` attribute, likewise.
        lang: ``xml:lang`` of the stanza; None also for one that is no language tag.
        sole_child: the name of the only child, as an IQ get or set must have one (RFC 6120
            §8.2.3); None when there is none or more than one.
    """

    _element: Element
    size: int
    kind: Kind | None = None
    type: str = ""
    id: str | None = None
    sender: str | None = None
    to: str | None = None
    lang: str | None = None
    sole_child: str | None = None

    def __post_init__(self) -> None:
        """Read the head."""
        element = self._element
        self.kind = _KINDS.get(element.tag)
        type_, self.id, self.sender, self.to, self.lang = map(element.attrib.get, _HEAD)
        if self.lang is not None:
            self.lang = language_tag(self.lang)
        self.type = type_ or _DEFAULT_TYPES.get(self.kind or "", "")
        self.sole_child = element[0].tag if len(element) == 1 else None

    @property
    def name(self) -> str:
        """The stanza's own element name in Clark notation."""
        return self._element.tag

    @property
    def payload_names(self) -> list[str]:
        """Names of the children in Clark notation, ``<error/>`` and the RFC's own left out."""
        # Compared whole: a namespace may hold a brace, and begin like another one.
        return [each.tag for each in self._element if each.tag.rpartition("}")[0] != _OWN[:-1]]

    @property
    def child_names(self) -> list[str]:
        """Names of all children in Clark notation, the RFC's own among them."""
        return [child.tag for child in self._element]

    def texts_of(self, local: str) -> list[str]:
        """The texts of all children of that name in the stanza's own namespace, one a language."""
        return [child.text or "" for child in self._element.findall(_OWN + local)]

    def sole_payload(self, cls: _Class[P]) -> P:
        """The only child, decoded as ``cls``; that ``sole_child`` is its name is not checked again.

        Raises:
            ContentError: it does not fit its declaration.
        """
        return cast("P", decoder_for(cls)(self._element[0]))

    def sole_decoded(self, decode: Decoder) -> Payload:
        """As ``sole_payload``, by a decoder that ``decoder_for`` gave once for all stanzas."""
        payload: Payload = decode(self._element[0])
        return payload

    def payload(self, cls: _Class[P], *, strict: bool = False) -> P | None:
        """The first child that is a ``cls``; None when there is none.

        Raises:
            ContentError: it is there and does not fit its declaration.
        """
        child = self._element.find(cls.xml.tag)
        return None if child is None else decode(cls, child, strict=strict)

    def require(self, cls: _Class[P]) -> P:
        """The first child that is a ``cls``.

        Raises:
            ContentError: it is missing, or does not fit its declaration.
        """
        found = self.payload(cls)
        if found is None:
            raise ContentError(self.kind or "stanza", f"<{cls.xml.local}/> is missing")
        return found

    def text_of(self, local: str, lang: str | None = None) -> str | None:
        """The text of a child in the stanza's own namespace, such as ``body`` or ``thread``.

        Of several, the one in ``lang`` is preferred, then one without a language, then the first
        (RFC 6121 §5.2.3).
        """
        found = self._element.findall(_OWN + local)
        if not found:
            return None
        for wanted in (lang, None):
            for child in found:
                if child.get(_LANG) == wanted:
                    return child.text or ""
        return found[0].text or ""

    def error(self, known: tuple[_Class[Payload], ...] = ()) -> StanzaError:
        """The error that a stanza of type ``error`` carries."""
        return StanzaError.of(self._element.find(_ERROR), known)

    def forward(self, *, from_: str | None = None, to: str | None = None) -> str:
        """The whole stanza as XML text again, for who routes it on (RFC 6120 §10).

        Everything in it stays as it came; ``from_`` and ``to`` replace the addresses where given.
        """
        given = {"from": from_, "to": to}
        changed = {name: address for name, address in given.items() if address is not None}
        return write(self._element, NAMESPACE, self._element.attrib | changed)


Address = JID | str


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
        """As XML text. Raises EncodingError when a value has no form on the wire."""
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
        """As XML text. Raises EncodingError when a value has no form on the wire."""
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
        """As XML text. Raises EncodingError when a value has no form on the wire."""
        return _stanza("iq", self, "", () if self.payload is None else (self.payload,))


def _stanza(
    name: str, stanza: Message | Presence | IQ, content: str, payloads: tuple[Payload, ...]
) -> str:
    xml = f"<{name} from='{escape_attribute(str(stanza.from_))}'"
    if stanza.to is not None:
        xml += f" to='{escape_attribute(str(stanza.to))}'"
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
