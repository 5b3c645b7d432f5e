"""Outgoing IQs, each of which waits for the answer of its peer."""

from typing import Literal, TypeVar

import anyio

from component import system
from component.link.messages.delivery import Delivery
from component.link.messages.outbox import Outbox
from xep.binding import ContentError, Payload
from xep.jid import JID, JIDError
from xep.stanza import IQ, Incoming
from xep.stanza_error import StanzaError

P = TypeVar("P", bound=Payload)


class _Call:
    __slots__ = ("ended", "outcome")

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.outcome: Incoming | StanzaError | None = None

    def end(self, outcome: Incoming | StanzaError) -> None:
        self.outcome = outcome
        self.ended.set()


class NoAnswerError(StanzaError):
    """No answer has come: whether the IQ was received is unknown."""

    def __init__(self, text: str) -> None:
        super().__init__("remote-server-timeout", text)


class Calls:
    """The IQs that wait for an answer, keyed by id and peer.

    An answer counts only if it has the id and comes from the very address that was asked
    (RFC 6120 §8.1.2.1): nobody else can answer, whatever id they guess.

    Args:
        outbox: sends them.
        default: the address that asks unless another one is given.
        timeout_s: seconds to wait for an answer unless another time is given.
        known_errors: the application conditions that are decoded from errors.
        tag: identifies this instance at the beginning of each id; empty if it is the only one.
    """

    def __init__(
        self,
        outbox: Outbox,
        default: JID,
        timeout_s: float,
        known_errors: tuple[type[Payload], ...] = (),
        tag: str = "",
    ) -> None:
        self._outbox = outbox
        self._default = default
        self._timeout_s = timeout_s
        self._known_errors = known_errors
        self._tag = tag
        self._waiting: dict[tuple[str, JID], _Call] = {}

    async def call(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: type[P],
        *,
        from_: JID | None = None,
        timeout_s: float | None = None,
    ) -> P:
        """Send an IQ and return the payload of its result. If it fails or is cancelled before the
        IQ was sent, the IQ is withdrawn.

        Raises:
            StanzaError: the peer's error; ``remote-server-timeout`` when no answer came in time or
                the connection to the server was lost while waiting; ``policy-violation`` when the
                answer cannot be read; ``undefined-condition`` when it is no ``expected``.
        """
        iq = IQ(type=type_, id=self._new_id(), to=to, from_=from_ or self._default, payload=payload)
        answer = await self._answer(iq, to, timeout_s)
        return _expect(expected, answer)

    async def call_any(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: tuple[type[P], ...],
        *,
        from_: JID | None = None,
    ) -> P:
        """Send an IQ whose result has one of several payloads, like `call`. Raises NoAnswerError if
        none came.
        """
        iq = IQ(type=type_, id=self._new_id(), to=to, from_=from_ or self._default, payload=payload)
        answer = await self._answer(iq, to, None)
        present = [each for each in expected if each.xml.tag in answer.child_names]
        return _expect((present or expected)[0], answer)

    async def call_optional(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: type[P],
        *,
        from_: JID | None = None,
    ) -> P | None:
        """Send an IQ whose result may have no payload, like `call`; return None if it has none."""
        iq = IQ(type=type_, id=self._new_id(), to=to, from_=from_ or self._default, payload=payload)
        answer = await self._answer(iq, to, None)
        return _expect(expected, answer) if answer.payload_names else None

    async def _answer(self, iq: IQ, to: JID, timeout_s: float | None) -> Incoming:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        call, delivery = _Call(), Delivery()
        key = (iq.id, to)
        self._waiting[key] = call
        try:
            self._outbox.put(iq.encode(), delivery, str(to))
            with anyio.move_on_after(timeout_s):
                await call.ended.wait()
        finally:
            del self._waiting[key]
            if not isinstance(call.outcome, Incoming):
                delivery.withdraw()
        answer = call.outcome or NoAnswerError(f"{to} did not answer within {timeout_s:g} seconds")
        if isinstance(answer, StanzaError):
            raise answer
        if answer.type == "error":
            raise answer.error(self._known_errors)
        return answer

    def answered(self, stanza: Incoming) -> bool:
        """Pass a result or an error to the call that waits for it; return False if none does."""
        call = self._waiting_for(stanza.id, stanza.sender)
        if call is None:
            return False
        call.end(stanza)
        return True

    def skipped(self, id_: str | None, sender: str | None) -> None:
        """Fail the call whose answer was skipped because it exceeds a limit or is not
        well-formed.
        """
        call = self._waiting_for(id_, sender)
        if call is not None:
            call.end(StanzaError("policy-violation", f"the answer of {sender} cannot be read"))

    def connection_lost(self) -> None:
        """Fail every waiting call: its answer will not arrive any more."""
        for call in self._waiting.values():
            if call.outcome is None:
                call.end(NoAnswerError("the connection to the server was lost while waiting"))

    def _new_id(self) -> str:
        return self._tag + system.token_urlsafe(9)

    def _waiting_for(self, id_: str | None, sender: str | None) -> _Call | None:
        """Return the call that still waits for this id from this address."""
        if id_ is None or sender is None:
            return None
        try:
            peer = JID.parse_delivered(sender)
        except JIDError:
            return None
        call = self._waiting.get((id_, peer))
        return None if call is None or call.outcome is not None else call


def _expect(cls: type[P], answer: Incoming) -> P:
    """Return the payload of an answer.

    Raises:
        StanzaError: ``undefined-condition`` when the peer's answer does not fit its declaration.
    """
    try:
        return answer.require(cls)
    except ContentError as error:
        raise StanzaError(
            "undefined-condition", f"{answer.sender} sent an unexpected answer: {error}"
        ) from error
