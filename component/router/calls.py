"""Outgoing IQs, each of which waits for the answer of its peer."""

from collections.abc import Callable
from typing import Literal, TypeVar

import anyio

from component import system
from component.messages.delivery import Delivery
from xep.binding import ContentError, Payload
from xep.jid import JID, JIDError
from xep.stanza import IQ, Incoming
from xep.stanza_error import StanzaError

P = TypeVar("P", bound=Payload)


class _Call:
    __slots__ = ("answer", "answered", "failure")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.answer: Incoming | None = None
        self.failure: StanzaError | None = None

    def fail(self, error: StanzaError) -> None:
        self.failure = error
        self.answered.set()


class Calls:
    """The IQs that wait for an answer, keyed by id and peer.

    An answer counts only if it has the id and comes from the very address that was asked
    (RFC 6120 §8.1.2.1): nobody else can answer, whatever id they guess.
    """

    def __init__(self, put: Callable[[str, Delivery, str], None]) -> None:
        self._put = put
        self._waiting: dict[tuple[str, JID], _Call] = {}

    async def call(
        self,
        type_: Literal["get", "set"],
        to: JID,
        from_: JID,
        payload: Payload,
        timeout_s: float,
        known_errors: tuple[type[Payload], ...] = (),
    ) -> Incoming:
        """Send an IQ and wait for its result. If it fails or is cancelled before the IQ was sent,
        the IQ is withdrawn.

        Args:
            type_: get or set.
            to: the address of the peer.
            from_: the address of this service that asks.
            payload: the request.
            timeout_s: how long to wait, in seconds.
            known_errors: application conditions to decode from an error.

        Raises:
            StanzaError: the peer's own error; ``remote-server-timeout`` when no answer came in
                time or the connection to the server was lost while waiting;
                ``policy-violation`` when the answer cannot be read.
        """
        call, delivery = _Call(), Delivery()
        key = (system.token_urlsafe(9), to)
        self._waiting[key] = call
        try:
            iq = IQ(type=type_, id=key[0], to=to, from_=from_, payload=payload)
            self._put(iq.encode(), delivery, str(to))
            with anyio.move_on_after(timeout_s):
                await call.answered.wait()
        finally:
            del self._waiting[key]
            if call.answer is None:
                delivery.withdraw()
        if call.failure is not None:
            raise call.failure
        if call.answer is None:
            raise StanzaError(
                "remote-server-timeout", f"{to} did not answer within {timeout_s:g} seconds"
            )
        if call.answer.type == "error":
            raise call.answer.error(known_errors)
        return call.answer

    def answered(self, stanza: Incoming) -> bool:
        """Pass a result or an error to the call that waits for it; return False if none does."""
        call = self._waiting_for(stanza.id, stanza.sender)
        if call is None:
            return False
        call.answer = stanza
        call.answered.set()
        return True

    def skipped(self, id_: str | None, sender: str | None) -> None:
        """Fail the call whose answer was skipped because it exceeds a limit or is not
        well-formed.
        """
        call = self._waiting_for(id_, sender)
        if call is not None:
            call.fail(StanzaError("policy-violation", f"the answer of {sender} cannot be read"))

    def connection_lost(self) -> None:
        """Fail every waiting call: its answer will not arrive any more."""
        for call in self._waiting.values():
            if not call.answered.is_set():
                call.fail(
                    StanzaError(
                        "remote-server-timeout",
                        "the connection to the server was lost while waiting",
                    )
                )

    def _waiting_for(self, id_: str | None, sender: str | None) -> _Call | None:
        """Return the call that still waits for this id from this address."""
        if id_ is None or sender is None:
            return None
        try:
            peer = JID.parse_delivered(sender)
        except JIDError:
            return None
        call = self._waiting.get((id_, peer))
        return None if call is None or call.answered.is_set() else call


def expect(cls: type[P], answer: Incoming) -> P:
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
