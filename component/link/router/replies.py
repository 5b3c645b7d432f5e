"""Encodes replies to IQs and errors to messages, and puts them into the output."""

from functools import lru_cache

import structlog

from component.link.messages.delivery import Delivery
from component.link.messages.outbox import Outbox
from component.link.messages.signals import says_nothing
from component.link.router.faults import RouterErrors
from component.link.router.rare_log import RareLog
from component.link.router.table import ReplyPayload
from xep.binding import EncodingError, RawXML, encode
from xep.binding.encoder import encoder_for
from xep.binding.escaping import attribute_special, escape_attribute
from xep.stanza import NAMESPACE, Incoming
from xep.stanza_error import StanzaError
from xep.stream import StanzaSkipped

_log = structlog.get_logger("component.router")
_LONGEST_KEPT = 512
_NEVER_BOUNCED = frozenset(("error", "groupchat", "headline"))
"""Types of messages that are never bounced: a bounce could be bounced, or nobody waits for it."""


class Replies:
    """Answers stanzas. Addresses are sent back byte for byte as received, even if they are invalid.

    No error of a handler's answer is raised here, and no stanza larger than the limit is sent:
    servers would close the stream, which all share. A too large answer becomes an error. A request
    gets no reply only if its id and addresses alone exceed the limit.

    Args:
        outbox: takes the replies.
        default: the address that answers stanzas without a ``to``.
        max_stanza_bytes: the largest stanza to send.
        faults: makes the errors of answers that cannot be sent.

    Attributes:
        outbox: as given.
        faults: as given.
        results: IQs answered with a result so far.
        errors: IQs answered with an error so far, by its condition.
    """

    def __init__(
        self, outbox: Outbox, default: str, max_stanza_bytes: int, faults: RouterErrors
    ) -> None:
        self.outbox = outbox
        self._default = default
        self.faults = faults
        self._limit = max_stanza_bytes
        self.results = 0
        self.errors: dict[str, int] = {}
        self._rare_log = RareLog(_log)
        self._surely_fits = max_stanza_bytes // 4  # no character takes more than four bytes

    def result(self, stanza: Incoming, answer: ReplyPayload, head: str | None = None) -> None:
        """Answer an IQ with a result, or with an error if the result cannot be sent.

        `head` is the result of `head_of` for it, followed by the name of the id and a quote, if the
        caller has computed that.
        """
        if isinstance(answer, RawXML):
            content = answer.text
        elif answer is None:
            content = ""
        else:
            try:
                content = encoder_for(type(answer))(answer, NAMESPACE)
            except Exception as error:  # noqa: BLE001 - whatever a handler made must still be answered
                self.error(stanza, self._unsendable(stanza.sole_child, error))
                return
        if head is None:
            head = self._head("iq", "result", stanza.id, stanza.sender, stanza.to)
        else:
            id_ = stanza.id or ""
            head = f"{head}{id_ if attribute_special(id_) is None else escape_attribute(id_)}'"
        reply = f"{head}>{content}</iq>" if content else head + "/>"
        if len(reply) <= self._surely_fits or self._fits(reply):
            self.results += 1
            self.outbox.put(reply, None, stanza.sender or "")
        else:
            self._too_big(stanza)

    def error(self, stanza: Incoming | StanzaSkipped, error: StanzaError) -> None:
        """Answer an IQ with an error."""
        sender = _sender_of(stanza)
        self.errors[error.condition] = self.errors.get(error.condition, 0) + 1
        head = self._head("iq", "error", stanza.id, sender, stanza.to)
        beside = "" if error.beside is None else encode(error.beside, NAMESPACE)
        reply = f"{head}>{beside}{self._encoded(error)}</iq>"
        if not self._fits(reply):
            reply = f"{head}>{StanzaError('policy-violation').encode()}</iq>"
        if self._fits(reply):
            self.outbox.put(reply, None, sender or "")
        else:
            self._rare_log.warning("left an IQ unanswered: its id is too long to be sent back")

    def bounce(self, stanza: Incoming | StanzaSkipped, error: StanzaError) -> None:
        """Tell the sender of a message that it was not handled (RFC 6121 §5.2.2).

        Other stanzas are ignored, and so are messages without content, such as receipts, and those
        whose bounce could be bounced.
        """
        if stanza.kind != "message" or stanza.type in _NEVER_BOUNCED:
            return
        if isinstance(stanza, Incoming) and says_nothing(stanza):
            return
        sender = _sender_of(stanza)
        head = self._head("message", "error", stanza.id, sender, stanza.to)
        bounced = f"{head}>{self._encoded(error)}</message>"
        if self._fits(bounced):
            self.outbox.put(bounced, Delivery(must_arrive=True), sender or "")

    def _too_big(self, stanza: Incoming) -> None:
        text = f"The request or its result is bigger than {self._limit} bytes."
        self.error(stanza, self.faults.too_big(stanza.sole_child, self._limit, text))

    def _encoded(self, error: StanzaError) -> str:
        try:
            return error.encode()
        except Exception as fault:  # noqa: BLE001 - whatever a handler made must still be answered
            return self._unsendable(None, fault).encode()

    def _unsendable(self, payload: str | None, error: Exception) -> StanzaError:
        _log.error("a handler's answer cannot be sent", exc_info=error)
        found = self.faults.internal(payload)
        if isinstance(error, EncodingError):
            found.text = f"The answer cannot be sent: {error}."
        return found

    def _fits(self, xml: str) -> bool:
        return len(xml) <= self._surely_fits or len(xml.encode()) <= self._limit

    def _head(
        self, name: str, type_: str, id_: str | None, to: str | None, from_: str | None
    ) -> str:
        from_ = from_ or self._default
        # Cached, because there are few senders and each sends many stanzas. A long address is
        # likely hostile and is not cached.
        short = len(from_) + len(to or "") <= _LONGEST_KEPT
        head = (_written_once if short else head_of)(name, type_, to, from_)
        return head if id_ is None else f"{head} id='{escape_attribute(id_)}'"


def _sender_of(stanza: Incoming | StanzaSkipped) -> str | None:
    return stanza.sender if isinstance(stanza, Incoming) else stanza.from_


def head_of(name: str, type_: str, to: str | None, from_: str) -> str:
    """Return the beginning of a stanza: its name, type and addresses, which are escaped here."""
    head = f"<{name} type='{type_}' from='{escape_attribute(from_)}'"
    return head if to is None else f"{head} to='{escape_attribute(to)}'"


_written_once = lru_cache(maxsize=1024)(head_of)
