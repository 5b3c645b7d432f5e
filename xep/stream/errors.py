"""Stream errors (RFC 6120 §4.9): the one error class of `xep.stream`, raised, sent and received."""

from typing import TYPE_CHECKING, Final, Literal, get_args

from xep.stream.escape import escape

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

STREAMS: Final = "http://etherx.jabber.org/streams"
"""The stream namespace (RFC 6120 §4.8.1), bound to the prefix `stream` in all output."""

STREAM_ERRORS: Final = "urn:ietf:params:xml:ns:xmpp-streams"
"""The namespace of the defined conditions (RFC 6120 §4.9.2)."""

Condition = Literal[
    "bad-format",
    "bad-namespace-prefix",
    "conflict",
    "connection-timeout",
    "host-gone",
    "host-unknown",
    "improper-addressing",
    "internal-server-error",
    "invalid-from",
    "invalid-namespace",
    "invalid-xml",
    "not-authorized",
    "not-well-formed",
    "policy-violation",
    "remote-connection-failed",
    "reset",
    "resource-constraint",
    "restricted-xml",
    "see-other-host",
    "system-shutdown",
    "undefined-condition",
    "unsupported-encoding",
    "unsupported-feature",
    "unsupported-stanza-type",
    "unsupported-version",
]
"""The conditions of RFC 6120 §4.9.3, by their names on the wire."""

_LONGEST: Final = 500

CONDITIONS: Final[dict[str, Condition]] = {name: name for name in get_args(Condition)}


class StreamError(Exception):
    """The end of a stream: a defined condition and a sentence for people (RFC 6120 §4.9.2).

    It is raised (or reported as an event) by the parser because of the peer's input, decoded from a
    received `<stream:error/>`, and encoded to be sent.
    """

    def __init__(self, condition: Condition, text: str = "", *, content: str = "") -> None:
        """Create the error.

        `content` is the text inside the condition element itself, which only `see-other-host` has
        (the host to go to, RFC 6120 §4.9.3.19).
        """
        super().__init__(f"{condition}: {text}" if text else condition)
        self.condition: Condition = condition
        self.text = text
        self.content = content

    def encode(self) -> bytes:
        """Return the `<stream:error/>` element; the stream header has bound the prefix `stream`."""
        condition = f"<{self.condition} xmlns='{STREAM_ERRORS}'"
        condition += f">{escape(self.content)}</{self.condition}>" if self.content else "/>"
        text = ""
        if self.text:
            text = f"<text xmlns='{STREAM_ERRORS}' xml:lang='en'>{escape(self.text)}</text>"
        return f"<stream:error>{condition}{text}</stream:error>".encode()

    @classmethod
    def from_element(cls, element: "Element") -> "StreamError":
        """Decode a received `<stream:error/>`; it never raises.

        A missing condition, or one that the RFC does not define, is `undefined-condition`; the
        received name is then in the text, if there is no other. Texts are truncated after 500
        characters.
        """
        condition: Condition = "undefined-condition"
        text = content = unknown = ""
        for child in element:
            namespace, _, name = child.tag.rpartition("}")
            if namespace != "{" + STREAM_ERRORS:
                continue
            if name == "text":
                text = text or (child.text or "").strip()
            elif name in CONDITIONS:
                condition = CONDITIONS[name]
                content = (child.text or "").strip()
            else:
                unknown = name
        return cls(condition, (text or unknown)[:_LONGEST], content=content[:_LONGEST])
