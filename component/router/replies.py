"""Replies to IQs and errors to messages, as text on their way out."""

from functools import lru_cache
from typing import Protocol

import structlog

from component.router.rare_log import RareLog
from component.router.table import Answer
from xep.binding import Encoded, EncodingError
from xep.binding.encoder import encoder_for
from xep.binding.escaping import attribute_special, escape_attribute
from xep.fluux_agent import errors
from xep.stanza import NAMESPACE, Incoming
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.router")
_LONGEST_KEPT = 512


class Output(Protocol):
    """Where replies go: bytes wait here for a server that reads slowly."""

    @property
    def congested(self) -> bool:
        """Whether so much waits already that no new work should be taken on."""

    def put(self, xml: str, /) -> None:
        """Take one whole stanza; never waits."""


class Replies:
    """Answers stanzas. Addresses go back byte for byte as they came, whatever we think of them.

    Nothing here raises for what a handler made, and nothing larger than a stanza may be is sent:
    servers close the stream on that, and it carries everybody. An answer too large becomes an
    error. Only if the id and the addresses alone are too large to be repeated is there no reply.

    Args:
        output: where replies go.
        domain: the address that answers what was sent to none.
        max_stanza_bytes: the largest stanza to send.

    Attributes:
        results: IQs answered with a result so far.
        errors: IQs answered with an error so far, by its condition.
    """

    def __init__(self, output: Output, domain: str, max_stanza_bytes: int) -> None:
        self._output = output
        self._domain = domain
        self._limit = max_stanza_bytes
        self.results = 0
        self.errors: dict[str, int] = {}
        self._rare_log = RareLog(_log)
        self._surely_fits = max_stanza_bytes // 4  # no character takes more than four bytes

    def encoded(self, stanza: Incoming, answer: Encoded, head: str) -> None:
        """Answer an IQ with a result of which nothing is left to be written but its id.

        `head` is what `head_of` gives for it, and then the name of the id and a quote.
        """
        id_ = stanza.id or ""
        if attribute_special(id_) is not None:
            id_ = escape_attribute(id_)
        reply = f"{head}{id_}'>{answer.xml}</iq>"
        if len(reply) <= self._surely_fits or self._fits(reply):
            self.results += 1
            self._output.put(reply)
        else:
            self.error(stanza, errors.too_big(self._limit))

    def result(self, stanza: Incoming, answer: Answer) -> None:
        """Answer an IQ with a result, or with the error that sending it would be."""
        if isinstance(answer, Encoded):
            content = answer.xml
        else:
            try:
                content = "" if answer is None else encoder_for(type(answer))(answer, NAMESPACE)
            except Exception as error:  # noqa: BLE001 - whatever a handler made must still be answered
                self.error(stanza, _unsendable(error))
                return
        head = self._head("iq", "result", stanza.id, stanza.sender, stanza.to)
        reply = f"{head}>{content}</iq>" if content else head + "/>"
        if len(reply) <= self._surely_fits or self._fits(reply):
            self.results += 1
            self._output.put(reply)
        else:
            self.error(stanza, errors.too_big(self._limit))

    def error(self, stanza: Incoming, error: StanzaError) -> None:
        """Answer an IQ with an error."""
        self.error_to(stanza.id, stanza.sender, stanza.to, error)

    def error_to(
        self, id_: str | None, sender: str | None, to: str | None, error: StanzaError
    ) -> None:
        """Answer an IQ of which no more is known than its id and addresses."""
        self.errors[error.condition] = self.errors.get(error.condition, 0) + 1
        head = self._head("iq", "error", id_, sender, to)
        reply = f"{head}>{_encoded(error)}</iq>"
        if not self._fits(reply):
            reply = f"{head}>{StanzaError('policy-violation').encode()}</iq>"
        if self._fits(reply):
            self._output.put(reply)
        else:
            self._rare_log.warning("left an IQ unanswered: its id is too long to be sent back")

    def bounce(self, stanza: Incoming, error: StanzaError) -> None:
        """Tell the sender of a message that it was not taken (RFC 6121 §5.2.2)."""
        head = self._head("message", "error", stanza.id, stanza.sender, stanza.to)
        bounced = f"{head}>{_encoded(error)}</message>"
        if self._fits(bounced):
            self._output.put(bounced)

    def _fits(self, xml: str) -> bool:
        return len(xml) <= self._surely_fits or len(xml.encode()) <= self._limit

    def _head(
        self, name: str, type_: str, id_: str | None, to: str | None, from_: str | None
    ) -> str:
        from_ = from_ or self._domain
        # Written once: there are few senders, and each sends many stanzas. What is long is hostile
        # and not to be kept.
        short = len(from_) + len(to or "") <= _LONGEST_KEPT
        head = (_written_once if short else head_of)(name, type_, to, from_)
        return head if id_ is None else f"{head} id='{escape_attribute(id_)}'"


def head_of(name: str, type_: str, to: str | None, from_: str) -> str:
    """The beginning of a stanza: its name, type and addresses, which are escaped here."""
    head = f"<{name} type='{type_}' from='{escape_attribute(from_)}'"
    return head if to is None else f"{head} to='{escape_attribute(to)}'"


_written_once = lru_cache(maxsize=1024)(head_of)


def _encoded(error: StanzaError) -> str:
    try:
        return error.encode()
    except Exception as fault:  # noqa: BLE001 - whatever a handler made must still be answered
        return _unsendable(fault).encode()


def _unsendable(error: Exception) -> StanzaError:
    _log.error("a handler's answer cannot be sent", exc_info=error)
    found = errors.internal()
    if isinstance(error, EncodingError):
        found.text = f"The answer cannot be sent: {error}."
    return found
