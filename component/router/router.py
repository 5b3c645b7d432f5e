"""The road of every stanza: door-keeper, handler, reply.

`received` runs for each read of the stream and never waits: what a handler answers at once is
encoded at once, what suspends gets a task. So the stream is always read, whoever is slow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Literal, NoReturn, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.router.admission import Admission, Shares
from component.router.calls import Calls, expect
from component.router.doors import Door, Doors, OpenDoor
from component.router.rare_log import RareLog
from component.router.replies import Output, Replies
from component.router.senders import Sender, Senders
from component.router.table import Request, Route, Table
from component.router.turns import Event, Turns, of_one_sender
from component.router.work import Work, failed
from xep.binding import ContentError, Encoded, Payload
from xep.fluux_agent import errors
from xep.fluux_agent.errors import Retry
from xep.jid import JID
from xep.stanza import Incoming
from xep.stanza_error import StanzaError
from xep.stream import StanzaSkipped

__all__ = ["Event", "Router", "RouterOptions"]

P = TypeVar("P", bound=Payload)

_log = structlog.get_logger("component.router")
_MESSAGE_TYPES = frozenset(("chat", "error", "groupchat", "headline", "normal"))
_BOUNCED = frozenset(("chat", "normal"))
"""Nothing is bounced that bounces could answer: errors, headlines, what a room sends."""
_NOBODY = "there is nobody of that address here"

_ANSWERS = frozenset(("result", "error"))
_READY = (Encoded, Payload)
"""What can be sent at once, as an answer that is awaited cannot."""

_STRAIGHT_THROUGH = 4
"""A read of so few stanzas is handled in its own order; sorting it by principal gains nothing."""
_SLICE = 16
_SLICE_S = 0.001
"""Stanzas, and seconds, of work after which what has come meanwhile is looked at."""
_LONGEST_ROUND = 8
"""Stanzas between two looks at the clock."""


class RouterOptions(msgspec.Struct, frozen=True):
    """What a router is told by the settings.

    Attributes:
        domain: the component's own domain.
        agents: localparts of the agents it hosts.
        shares: how many requests may be under way.
        request_timeout_s: seconds after which a handler that still runs is cancelled.
        retry_after_s: seconds named in the retry hint of a refusal that may pass.
        call_timeout_s: seconds to wait for the answer to an IQ of ours.
        max_stanza_bytes: the largest stanza to send; servers close the stream on larger ones.
    """

    domain: str
    agents: frozenset[str] = frozenset()
    shares: Shares = Shares()
    request_timeout_s: float = 60.0
    retry_after_s: int = 5
    call_timeout_s: float = 30.0
    max_stanza_bytes: int = 262_144


class Router:
    """Takes what the stream brings to the handler whose it is, and each answer back.

    Every IQ get or set gets exactly one reply. Results and errors are never refused: they go to
    the call that waits for them. A principal over its share is refused at once, alone.
    """

    def __init__(
        self,
        options: RouterOptions,
        routes: Iterable[Route],
        admits: Callable[[JID], bool],
        output: Output,
        flush: Callable[[], None],
        clock: Callable[[], float] = perf_counter,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Be told by `refused` whom policy does not admit, at each stanza of theirs."""
        self.table = Table(routes)
        self.options = options
        self.domain = JID.parse(options.domain)
        self._output = output
        self._replies = Replies(output, options.domain, options.max_stanza_bytes)
        self._flush = flush
        self._clock = clock
        self._refused = refused
        self._senders = Senders(admits, self.domain.domain)
        self._doors = Doors(self._senders, self.domain, options.agents, self.table)
        self._admission = Admission(options.shares)
        self._calls = Calls(output.put)
        self._work = Work(self._admission, self._replies, flush, options.request_timeout_s)
        self._turns = Turns()
        self._rare_log = RareLog(_log, clock)

    # -- life ------------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the tasks of slow handlers until cancelled; what is cancelled is still answered."""
        await self._work.run(task_status=task_status)

    async def drain(self, timeout_s: float) -> int:
        """Take on nothing new and wait until what is under way is answered.

        What still runs after ``timeout_s`` seconds is cancelled, which answers it too. Returns how
        many requests that were.
        """
        while self.received(()):
            pass
        return await self._work.drain(timeout_s)

    def disconnected(self, reason: str) -> None:
        """The stream is gone: nobody will answer the calls that went out on it."""
        _log.debug("calls in flight fail", reason=reason)
        self._calls.connection_lost()

    # -- figures ---------------------------------------------------------------------------------

    @property
    def answered(self) -> Mapping[str, int]:
        """IQs answered so far: `result`, and the conditions of errors."""
        return {"result": self._replies.results, **self._replies.errors}

    @property
    def under_way(self) -> int:
        """Requests that somebody works on, beside the stream."""
        return self._admission.total

    @property
    def waiting(self) -> int:
        """Stanzas that came and wait for their turn."""
        return self._turns.waiting

    # -- out -------------------------------------------------------------------------------------

    async def call(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: type[P],
        *,
        from_: JID | None = None,
        timeout_s: float | None = None,
        known_errors: tuple[type[Payload], ...] = errors.CONDITIONS,
    ) -> P:
        """Send an IQ and return the payload of its result.

        ``known_errors`` are the application conditions to decode from an error.

        Raises:
            StanzaError: the peer's error, ``remote-server-timeout`` when none answered,
                ``policy-violation`` when the answer cannot be read here, or
                ``undefined-condition`` when it is no ``expected``.
        """
        answer = await self._calls.call(
            type_,
            to,
            from_ or self.domain,
            payload,
            self.options.call_timeout_s if timeout_s is None else timeout_s,
            known_errors,
        )
        return expect(expected, answer)

    # -- in --------------------------------------------------------------------------------------

    def received(self, events: Sequence[Event]) -> int:
        """Take what one read of the stream brought, and handle a slice of what waits.

        Stanzas of one principal keep their order. Of several each gets its turn, one of each per
        round; who then has all answers is not kept waiting for them by the rest.

        Returns how many stanzas still wait. While there are any it is to be called again, with what
        has come meanwhile or with nothing: so that a turn of somebody new is never far away.
        """
        turns = self._turns
        if not turns.waiting and (
            len(events) <= _STRAIGHT_THROUGH or (len(events) <= _SLICE and of_one_sender(events))
        ):
            for event in events:
                self._handle(event)
            return 0
        turns.add(events)
        rest = max(0, turns.waiting - _SLICE)
        over = self._clock() + _SLICE_S
        while turns.waiting > rest:
            principals = turns.principals
            for event in turns.round(_LONGEST_ROUND):
                self._handle(event)
            if 0 < turns.principals < principals:
                self._flush()
            if self._clock() > over:
                break
        return turns.waiting

    def _handle(self, event: Event) -> None:
        if isinstance(event, StanzaSkipped):
            self._refuse_skipped(event)
            return
        stanza = event.stanza
        kind = stanza.kind
        if kind == "iq":
            if stanza.type not in _ANSWERS:
                self._handle_request(stanza)
            elif not self._calls.answered(stanza):
                _log.debug("an answer nobody waits for", sender=stanza.sender)
        elif kind is not None:
            self._handle_silent(stanza)
        else:
            _log.warning("ignored an element that is no stanza", name=stanza.name)

    def _handle_request(self, stanza: Incoming) -> None:
        door = self._doors.of(stanza)
        try:
            if not isinstance(door, OpenDoor) or stanza.id is None:
                if not door.sender.admitted:
                    self._refused(door.sender.principal_text)
                _refuse(stanza, door)
            if self._work.draining or self._admission.total or self._output.congested:
                self._check_busy(door.sender)
            try:
                payload = stanza.sole_decoded(door.decode)
            except ContentError as error:
                raise errors.malformed(str(error)) from error
            handler = door.handler
            answer = handler(
                Request(stanza, door.requester, door.principal, door.to, door.home, payload)
            )
        except StanzaError as error:
            self._replies.error(stanza, error)
        except Exception as error:  # noqa: BLE001 - a handler's fault must still be answered
            self._replies.error(stanza, failed(stanza, error))
        else:
            if type(answer) is Encoded:
                self._replies.encoded(stanza, answer, door.reply)
            elif answer is None or isinstance(answer, _READY):
                self._replies.result(stanza, answer)
            else:
                self._work.request(stanza, door.sender, answer)

    def _check_busy(self, sender: Sender) -> None:
        busy = self._busy(sender)
        if busy is not None:
            raise busy

    def _busy(self, sender: Sender) -> StanzaError | None:
        """Why nothing more can be taken on for this sender now; None when it can."""
        if self._work.draining:
            text = "the service is stopping; try again later"
        elif self._output.congested:
            text = "the server reads our answers too slowly; try again later"
        else:
            refusal = self._admission.refusal(sender.principal_text)
            if refusal is None:
                return None
            text = refusal
        retry = Retry(after=self.options.retry_after_s)
        return StanzaError("resource-constraint", text, application=(retry,))

    def _handle_silent(self, stanza: Incoming) -> None:
        """A message or a presence: whoever is refused hears nothing. Who is let in and has mistaken
        the address is told so (RFC 6121 §8.5.1).
        """
        sender = self._senders.of(stanza.sender or "")
        if sender.jid is None or sender.principal is None or not sender.admitted:
            self._refused(sender.principal_text)
            return
        to, host = self._doors.address(stanza.to)
        type_ = stanza.type
        if stanza.kind == "message" and type_ not in _MESSAGE_TYPES:
            type_ = "normal"  # RFC 6121 §5.2.2
        if host is None or stanza.kind is None:
            if stanza.kind == "message" and type_ in _BOUNCED:
                self._replies.bounce(stanza, StanzaError("service-unavailable", _NOBODY))
            return
        route = self.table.stanza(host, stanza.kind, type_)
        if route is None:
            return
        busy = self._busy(sender)
        if busy is not None:
            if type_ in _BOUNCED:
                self._replies.bounce(stanza, busy)
            return
        request = Request(stanza, sender.jid, sender.principal, to, host, None)
        try:
            working = route.handler(request)
        except Exception:  # noqa: BLE001 - a handler's fault stays its own
            _log.exception("a handler failed", kind=stanza.kind, sender=stanza.sender)
            return
        if working is not None:
            self._work.silent(stanza, sender, working)

    def _refuse_skipped(self, event: StanzaSkipped) -> None:
        why = event.limit if event.error is None else event.error.text
        self._rare_log.warning("skipped a stanza", sender=event.from_, bytes=event.size, reason=why)
        if event.kind != "iq":
            return
        if event.type not in ("get", "set"):
            self._calls.skipped(event.id, event.from_)
            return
        sender = self._senders.of(event.from_ or "")
        if sender.jid is None:
            error = StanzaError("jid-malformed", sender.refusal)
        elif not sender.admitted:
            self._refused(sender.principal_text)
            error = StanzaError("service-unavailable")
        else:
            error = _unread(event)
        self._replies.error_to(event.id, event.from_, event.to, error)


def _refuse(stanza: Incoming, door: Door) -> NoReturn:
    """Say why a request is refused whose door is not open, or that has no id."""
    if door.sender.jid is None:
        raise StanzaError("jid-malformed", door.sender.refusal)
    if not door.sender.admitted:
        raise StanzaError("service-unavailable")
    if stanza.id is None or stanza.type not in ("get", "set"):
        raise StanzaError("bad-request", "an IQ needs an id and a type (RFC 6120 §8.2.3)")
    if door.child is None:
        raise StanzaError("bad-request", "an IQ of type get or set holds exactly one child")
    if door.host is None:
        raise StanzaError("service-unavailable", _NOBODY)
    raise StanzaError("service-unavailable", "no such service here")


def _unread(event: StanzaSkipped) -> StanzaError:
    """Why a stanza was skipped, for its sender."""
    if event.error is not None:
        return errors.malformed(event.error.text)
    if event.limit == "bytes":
        return errors.too_big()
    error = errors.too_big()
    error.text = f"The stanza holds more {event.limit} than one may."
    return error
