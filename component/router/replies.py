"""Replies to IQs and errors to messages, as text on their way out."""

from typing import Protocol

import structlog

from component.router.table import Answer
from xep.binding import EncodingError, encode
from xep.binding.escaping import escape_attribute
from xep.stanza import NAMESPACE, Incoming
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.router")
_ROOM_FOR_ADDRESSES = 8_192


class Output(Protocol):
    """Where replies go: bytes wait here for a server that reads slowly."""

    @property
    def congested(self) -> bool:
        """Whether so much waits already that no new work should be taken on."""

    def put(self, xml: str, /) -> None:
        """Take one whole stanza; never waits."""


class Replies:
    """Answers stanzas. Addresses go back byte for byte as they came, whatever we think of them.

    Args:
        output: where replies go.
        domain: the address that answers what was sent to none.
        max_stanza_bytes: the largest stanza to send; servers close the stream on larger ones.
    """

    def __init__(self, output: Output, domain: str, max_stanza_bytes: int) -> None:
        self._output = output
        self._domain = domain
        self._limit = max_stanza_bytes - _ROOM_FOR_ADDRESSES

    def result(self, stanza: Incoming, answer: Answer) -> None:
        """Answer an IQ with a result, or with the error that sending it would be."""
        try:
            content = "" if answer is None else encode(answer, NAMESPACE)
        except EncodingError as error:
            text = f"the result cannot be sent: {error}"
            self.error(stanza, StanzaError("internal-server-error", text))
            return
        # No character takes more than four bytes, so short results need no count.
        if len(content) * 4 > self._limit and len(content.encode()) > self._limit:
            text = f"the result is larger than the {self._limit} bytes that one stanza can carry"
            self.error(stanza, StanzaError("policy-violation", text))
            return
        self._iq("result", stanza.id, stanza.sender, stanza.to, content)

    def error(self, stanza: Incoming, error: StanzaError) -> None:
        """Answer an IQ with an error."""
        self.error_to(stanza.id, stanza.sender, stanza.to, error)

    def error_to(
        self, id_: str | None, sender: str | None, to: str | None, error: StanzaError
    ) -> None:
        """Answer an IQ of which no more is known than its id and addresses."""
        self._iq("error", id_, sender, to, error.encode())

    def bounce(self, stanza: Incoming, error: StanzaError) -> None:
        """Tell the sender of a message that it was not taken (RFC 6121 §5.2.2).

        Nothing is bounced that bounces could answer: errors, headlines, what a room sends.
        """
        if stanza.kind == "message" and stanza.type in ("chat", "normal"):
            head = self._head("message", "error", stanza.id, stanza.sender, stanza.to)
            self._output.put(f"{head}>{error.encode()}</message>")

    def _iq(
        self, type_: str, id_: str | None, to: str | None, from_: str | None, content: str
    ) -> None:
        head = self._head("iq", type_, id_, to, from_)
        self._output.put(f"{head}>{content}</iq>" if content else head + "/>")

    def _head(
        self, name: str, type_: str, id_: str | None, to: str | None, from_: str | None
    ) -> str:
        head = f"<{name} type='{type_}' from='{escape_attribute(from_ or self._domain)}'"
        if to is not None:
            head += f" to='{escape_attribute(to)}'"
        if id_ is not None:
            head += f" id='{escape_attribute(id_)}'"
        return head
