"""Stanza errors: the conditions of RFC 6120 §8.3.3, raised, encoded and read back."""

from collections.abc import Mapping
from typing import Final, Literal, cast, get_args
from xml.etree.ElementTree import Element, fromstring

from xep.binding import ContentError, Payload, decode, encode
from xep.binding.escaping import escape_attribute, escape_text
from xep.language import language_tag

NAMESPACE: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"

ErrorType = Literal["auth", "cancel", "continue", "modify", "wait"]
Condition = Literal[
    "bad-request",
    "conflict",
    "feature-not-implemented",
    "forbidden",
    "gone",
    "internal-server-error",
    "item-not-found",
    "jid-malformed",
    "not-acceptable",
    "not-allowed",
    "not-authorized",
    "policy-violation",
    "recipient-unavailable",
    "redirect",
    "registration-required",
    "remote-server-not-found",
    "remote-server-timeout",
    "resource-constraint",
    "service-unavailable",
    "subscription-required",
    "undefined-condition",
    "unexpected-request",
]

DEFAULT_TYPES: Final[Mapping[Condition, ErrorType]] = {
    "bad-request": "modify",
    "conflict": "cancel",
    "feature-not-implemented": "cancel",
    "forbidden": "auth",
    "gone": "cancel",
    "internal-server-error": "cancel",
    "item-not-found": "cancel",
    "jid-malformed": "modify",
    "not-acceptable": "modify",
    "not-allowed": "cancel",
    "not-authorized": "auth",
    "policy-violation": "modify",
    "recipient-unavailable": "wait",
    "redirect": "modify",
    "registration-required": "auth",
    "remote-server-not-found": "cancel",
    "remote-server-timeout": "wait",
    "resource-constraint": "wait",
    "service-unavailable": "cancel",
    "subscription-required": "auth",
    "undefined-condition": "cancel",
    "unexpected-request": "wait",
}
"""The error type of each condition by RFC 6120 §8.3.3."""

_TYPES = frozenset(get_args(ErrorType))
_LONGEST = 2000


class StanzaError(Exception):
    """An error answer to a stanza: raised by handlers, and by a call whose peer answered with an
    error.

    Args:
        condition: one of RFC 6120 §8.3.3.
        text: a sentence for a person, without tracebacks and secrets. It is truncated after 2,000
            characters.
        type: what the sender may do about it; by default the type of the condition in the RFC.
        application: application-specific conditions (RFC 6120 §8.3.4), such as a retry hint.
        lang: ``xml:lang`` of the text.
        by: the entity that answered, if not the address in ``from``.
        address: for ``gone`` and ``redirect``, the new address as a URI.
        beside: what a reply carries beside ``<error/>`` (RFC 6120 §8.3.1).
    """

    def __init__(
        self,
        condition: Condition,
        text: str = "",
        *,
        type: ErrorType | None = None,  # noqa: A002 - the RFC's own name for it
        application: tuple[Payload, ...] = (),
        lang: str = "en",
        by: str | None = None,
        address: str | None = None,
        beside: Payload | None = None,
    ) -> None:
        if len(text) > _LONGEST:  # it may quote what a peer sent, and goes into logs, too
            text = text[:_LONGEST] + "…"
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition: Condition = condition
        self.text = text
        self.type: ErrorType = type or DEFAULT_TYPES[condition]
        self.application = application
        self.lang = lang
        self.by = by
        self.address = address
        self.beside = beside

    def copy(self, *more: Payload) -> "StanzaError":
        """Return the same error as a new exception, with more application-specific elements.

        An exception that is raised again accumulates a traceback.
        """
        return StanzaError(
            self.condition,
            self.text,
            type=self.type,
            application=(*self.application, *more),
            lang=self.lang,
            by=self.by,
            address=self.address,
            beside=self.beside,
        )

    def encode(self) -> str:
        """Return ``<error/>`` for a stanza in the stream's namespace."""
        by = "" if self.by is None else f" by='{escape_attribute(self.by)}'"
        xml = f"<error type='{self.type}'{by}>"
        xml += f"<{self.condition} xmlns='{NAMESPACE}'"
        xml += f">{escape_text(self.address)}</{self.condition}>" if self.address else "/>"
        if self.text:
            text = escape_text(self.text)
            lang = escape_attribute(self.lang)
            xml += f"<text xmlns='{NAMESPACE}' xml:lang='{lang}'>{text}</text>"
        return xml + "".join(map(encode, self.application)) + "</error>"

    @classmethod
    def read(cls, text: str, known: tuple[type[Payload], ...] = ()) -> "StanzaError":
        """Parse the stored result of `encode`; see `of`."""
        # The text has not passed the checks of a stream, but `encode` writes neither DTD nor
        # entity.
        return cls.of(fromstring(text), known)  # noqa: S314

    @classmethod
    def of(cls, element: Element | None, known: tuple[type[Payload], ...] = ()) -> "StanzaError":
        """Decode ``<error/>``. A missing or unknown condition becomes ``undefined-condition``.

        Args:
            element: the ``<error/>`` child, or None when the stanza of type error has none.
            known: application conditions to decode; others, and malformed ones, are left out.
        """
        if element is None:
            return cls("undefined-condition", "the error says nothing")
        condition: Condition = "undefined-condition"
        text, lang, address = "", "en", None
        application: list[Payload] = []
        classes = {payload.xml.tag: payload for payload in known}
        for child in element:
            namespace, _, name = child.tag.rpartition("}")
            if namespace == "{" + NAMESPACE:
                if name == "text":
                    text, lang = child.text or "", language_tag(child.get(_XML_LANG)) or "en"
                elif name in DEFAULT_TYPES:
                    condition = cast("Condition", name)
                    address = child.text if name in ("gone", "redirect") else None
            elif child.tag in classes:
                try:
                    application.append(decode(classes[child.tag], child))
                except ContentError:
                    continue
        stated = element.get("type")
        return cls(
            condition,
            text,
            type=cast("ErrorType", stated) if stated in _TYPES else None,
            application=tuple(application),
            lang=lang,
            by=element.get("by"),
            address=address or None,
        )
