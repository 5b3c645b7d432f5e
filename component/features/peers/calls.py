"""Calls of skills of peers: stored before they are sent, and followed without a slot.

The task here waits (`Context.wait_for_event`) while the call is a row. One loop for each open call
sends its request, always with the same bytes, until the peer has answered; then it follows the
peer's task by its events, and asks for it when an event may have been lost: after each new session,
and once a minute. Questions of the peer wake the task here, which asks its own principal.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component import system
from component.agent_addresses import canonical_address
from component.budget.protocol import Amount
from component.config.peers import Peer
from component.features.peers import rows
from component.features.peers.grants import PeerGrants
from component.features.peers.reach import Reach
from component.features.peers.receipts import Receipts
from component.features.peers.requests import (
    Left,
    allotted,
    error_of,
    failure_of,
    has_limits,
    new_call,
    result_of,
)
from component.features.peers.rows import Call
from component.grants import PublicKey
from component.kernel.kernel import Kernel
from component.link.router.calls import NoAnswerError
from component.link.router.table import Request, StanzaRoute
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.errors import Denied, SkillInterrupted
from component.skills.foreign_texts import clean
from component.skills.inputs import Arguments
from component.skills.operations import Parked
from component.skills.outputs import SkillResult
from component.skills.skill import Invoke
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks import question_rows
from xep.binding import ContentError, Payload, encode, read
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, Decision, parameters_of
from xep.fluux_agent.errors import GrantRequired, Retry
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.fluux_agent.task import AnswerParams, Cancel, Failure, InputAnswer, Task, Tasks
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_POLL_S: Final = 60.0
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_GRACE_MS: Final = 30_000
"""How far clocks of different servers may differ."""
_LONGEST_QUESTION: Final = 2000
_MESSAGES: Final = frozenset(("chat", "normal", "headline"))


class PeerCalls:
    """Sends the calls of this instance, and receives what peers report."""

    def __init__(self, kernel: Kernel, grants: PeerGrants, receipts: Receipts) -> None:
        self._kernel = kernel
        self.grants, self.receipts, self.reach = grants, receipts, Reach()
        self._storage = kernel.storage
        self._service = kernel.tasks.service
        self._followers: dict[str, _Follower] = {}
        self._demanding: set[str] = set()  # peers that want a grant for all that they do
        self._work = anyio.Event()
        self._work.set()
        self.is_connected = anyio.Event()
        if kernel.stream.is_connected():
            self.is_connected.set()

    # The skill.

    def invoke_of(self, peer: Peer, skill: str) -> Invoke:
        """Return what calls a skill of a peer."""

        async def invoke(arguments: Arguments, context: Context | None) -> SkillResult:
            assert context is not None, "it wants a context"
            return await self._call(peer, skill, arguments, context)

        return invoke

    async def _call(
        self, peer: Peer, skill: str, arguments: Arguments, context: Context
    ) -> SkillResult:
        call = None
        if context.is_stored:  # otherwise it is the first run, and no call is part of its task
            call = await self._storage.read(lambda db: rows.load(db, context.key))
        if call is None:
            self.reach.check(peer.name)
            sender = canonical_address(JID.parse(context.address))
            new, execute = new_call(peer, skill, arguments, context, sender)
            left = await self._left(context)
            try:
                if self._needs_no_row(peer, skill, context):
                    # After a kill it is another request: its deadline and its trace are.
                    execute = msgspec.structs.replace(execute, request=system.token_hex(16))
                    # What the peer reports before the call is stored must not be lost.
                    self._followers[new.id] = _Follower(self, self._kernel, new)
                    answer = await self._at_once(peer, new, execute)
                    if isinstance(answer, Result):
                        del self._followers[new.id]
                        return result_of(answer)
                    if answer is not None:
                        new = msgspec.structs.replace(new, state="accepted", remote=answer.task)
                new = msgspec.structs.replace(new, owner=self._service.instance)
                allot = partial(allotted, peer=peer, call=new, execute=execute, left=left)
                # The keys are looked up here: an operation of the database runs in another thread.
                begin = partial(self._begin, allot, self.grants.known_keys(new))
                await context.wait_for_event(new.id, begin)
            except Parked:
                self._work.set()  # after the commit
                raise
            except BaseException:
                self._followers.pop(new.id, None)
                raise
        if rows.is_asking(call):
            reply = await self._reply(peer, call, context)
            call_id = call.id
            await self._storage.write(lambda db: rows.change(db, call_id, reply=encode(reply)))
            self._wake(call_id)
        outcome = call.result()
        if outcome is None:
            await context.wait_for_event(call.id, partial(rows.is_pending, call=call.id))
        if isinstance(outcome, Result):
            return result_of(outcome)
        if call.unknown:
            raise SkillInterrupted(
                f"{peer.name} did not answer. Whether it has done this is not known."
            )
        raise error_of(outcome, peer.name)

    def _needs_no_row(self, peer: Peer, skill: str, context: Context) -> bool:
        """Return whether a call may be repeated, has no budget, and needs no grant.

        Calls for other agents have rows: their receipts belong to ours.
        """
        return (
            pattern(peer.read_only).fullmatch(skill) is not None
            and context.delegation is None
            and peer.name not in self._demanding
            and not has_limits(peer)
        )

    async def _at_once(self, peer: Peer, call: Call, execute: Execute) -> Result | Accepted | None:
        """Call a skill that may run again, without storing the call; None if there is no answer.

        Raises RemoteError.
        """
        to, from_ = JID.parse(call.address), JID.parse(call.sender)
        call = msgspec.structs.replace(call, request=encode(execute))
        ask = self._kernel.stream.router.call_any
        try:
            answer = await ask(*("set", to, execute, (Result, Accepted)), from_=from_)
        except StanzaError as error:
            if not error.application:
                self.reach.failed(peer.name)
                return None
            self.reach.answered(peer.name)
            if isinstance(error.application[0], Retry):
                return None
            if isinstance(error.application[0], GrantRequired):
                self._demanding.add(peer.name)
                return None
            failure = failure_of(error)
            await self.receipts.ended(call, failure)
            raise error_of(failure, peer.name) from None
        self.reach.answered(peer.name)
        assert isinstance(answer, Result | Accepted)
        if isinstance(answer, Result):
            await self.receipts.ended(call, answer)
        return answer

    async def _left(self, context: Context) -> Left:
        """Return what is left of the budget that came with the work."""
        given = context.delegation
        if given is None or (given.budget_usd is None and given.budget_tokens is None):
            return Left()
        spent = await self._kernel.tasks.spent_by(context.paid_by)
        usd, tokens = given.budget_usd, given.budget_tokens
        return Left(
            None if usd is None else float(usd) - spent.usd,
            None if tokens is None else tokens - spent.tokens,
        )

    def _begin(
        self,
        allot: Callable[[Database], Call],
        keys: Mapping[str, PublicKey] | None,
        database: Database,
    ) -> bool:
        """Store a call in the commit that lets its task wait. Raises RemoteError."""
        call = allot(database)
        rows.add(database, call)
        sign = self.grants.signing(call, keys) if call.state == "unanswered" else None
        if sign is not None:
            with suppress(StanzaError):  # the follower ends the call with this error
                sign(database)
        return rows.is_pending(database, call.id)

    async def spent(self, task: str) -> Amount:
        """Return what the ended calls have cost that a task pays. Raises StorageError."""
        costs = await self._storage.read(lambda db: rows.costs_of(db, task, ended=True))
        return Amount(costs.tokens, costs.usd, output=costs.output)

    async def _reply(self, peer: Peer, call: Call, context: Context) -> Payload:
        """Ask the principal what the peer asks, and return the answer for it."""
        question = read(call.question or "", Task, Confirm)
        if isinstance(question, Confirm):
            value: Literal["approve", "deny"] = "approve"
            if not await self._is_approved(peer, question, context.task):
                acting = question.agent or JID.parse(call.address)
                shown = msgspec.structs.replace(question, agent=acting)
                value = await context.confirm(encode(shown), question.id)
            return Decision(id=question.id, value=value, hash=question.hash)
        assert isinstance(question, Task)
        asked = question.input
        assert asked is not None, "only such events are questions"
        text = clean(asked.questions[0].text, _LONGEST_QUESTION)
        schema = msgspec.json.decode(asked.schema.json, type=dict[str, object])
        reply = InputAnswer(task=question.id, input=asked.id, revision=asked.revision)
        try:
            answer = await context.ask(
                f"The agent {peer.name} ({peer.jid}) asks: {text}", schema, key=asked.id
            )
        except Denied:
            return msgspec.structs.replace(reply, form=Form(type="cancel"))
        params = AnswerParams(json=msgspec.Raw(msgspec.json.encode(answer)))
        return msgspec.structs.replace(reply, params=params)

    async def _is_approved(self, peer: Peer, question: Confirm, task: str) -> bool:
        """Return whether the principal has approved here, for this call, what the peer itself wants
        to do: the same skill with the same parameters.
        """
        given = await self._storage.read(lambda db: question_rows.approved_of(db, task))
        if given is None or question.agent is not None:
            return False
        try:
            return given.action.type == f"{peer.name}.{question.action.type}" and parameters_of(
                given.action
            ) == parameters_of(question.action)
        except ValueError:
            return False

    # The loop.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send and follow the calls of this instance until cancelled."""
        task_status.started()
        async with anyio.create_task_group() as group:
            while True:
                await self._work.wait()
                self._work = anyio.Event()
                try:
                    await self._start_followers(group)
                except StorageError as error:
                    log_failure(_log, "calls of peers have to wait", error)
                    await anyio.sleep(_FIRST_WAIT_S)
                    self._work.set()

    async def _start_followers(self, group: TaskGroup) -> None:
        me = self._service.instance
        for call in await self._storage.write(lambda db: rows.open_calls(db, me)):
            follower = self._followers.get(call.id)
            if follower is None:
                follower = self._followers[call.id] = _Follower(self, self._kernel, call)
                follower.has_missed = call.state == "accepted"
            if not follower.is_started:
                follower.is_started = True
                group.start_soon(self._follow, follower)

    async def _follow(self, follower: "_Follower") -> None:
        try:
            await follower.run()
        finally:
            del self._followers[follower.call]

    def _wake(self, call: str) -> None:
        follower = self._followers.get(call)
        if follower is None:
            self._work.set()
        else:
            follower.wake()

    def connected(self) -> None:
        """Ask for the tasks of peers again: their events may have been lost."""
        self.is_connected.set()
        for follower in self._followers.values():
            follower.is_behind = follower.has_missed = True
            follower.wake()

    def disconnected(self) -> None:
        """Send nothing while there is no session."""
        self.is_connected = anyio.Event()

    def task_ended(self) -> None:
        """A task here has ended, perhaps one that waits for a peer."""
        for follower in self._followers.values():
            follower.wake()

    # What peers report.

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes of the messages of peers."""
        is_peer = self._kernel.environment.catalog.is_peer
        return (
            StanzaRoute(
                *("message", _MESSAGES, self._task_reported),
                payload=Task,
                admits=is_peer,
                falls_back=True,
            ),
            StanzaRoute(
                *("message", _MESSAGES, self._confirmation_asked),
                payload=Confirm,
                admits=is_peer,
                falls_back=True,
            ),
        )

    async def _task_reported(self, request: Request[None]) -> None:
        await self._report(request, Task)

    async def _confirmation_asked(self, request: Request[None]) -> None:
        await self._report(request, Confirm)

    async def _report(self, request: Request[None], kind: type[Task] | type[Confirm]) -> None:
        stanza = request.stanza
        try:
            news = stanza.require(kind)
        except ContentError as error:
            _log.warning(
                "ignored a bad message of a peer", peer=str(request.sender), reason=str(error)
            )
            return
        follower = self._followers.get(stanza.text_of("thread") or "")
        if follower is not None and follower.address == request.principal:
            follower.reported(news)

    def requeued(self, principals: tuple[str, ...]) -> None:
        """Let the tasks of these principals go on that waited for a peer."""
        for principal in principals:
            self._service.requeued(principal)


class _Follower:
    """Sends one call, and follows it to its end."""

    def __init__(self, calls: PeerCalls, kernel: Kernel, call: Call) -> None:
        self.call = call.id
        self.address = JID.parse(call.address)
        self.is_started = False
        self._calls = calls
        self._kernel = kernel
        self._storage = kernel.storage
        self._changed = anyio.Event()
        self._news: list[Task | Confirm] = []
        self._revision = -1
        self.is_behind = True
        """Whether an event may have been lost, so that the peer has to be asked."""
        self.has_missed = False
        """Whether a question may have been lost of a task that the peer's task has started."""
        self._began = anyio.current_time()
        self._unsure = False
        """Whether the peer may have got the request."""
        self._wait = _FIRST_WAIT_S

    def wake(self) -> None:
        """Look again what has to be done."""
        self._changed.set()

    def reported(self, news: Task | Confirm) -> None:
        """Take an event of the peer's task, or of one that it has started for it."""
        self._news.append(news)
        self.wake()

    async def run(self) -> None:
        """Do what the call needs until it has ended."""
        while True:
            self._changed = anyio.Event()
            try:
                delay = await self._step()
            except StorageError as error:
                log_failure(_log, "a call of a peer has to wait", error)
                delay = self._next_wait()
            if delay is None:
                return
            with anyio.move_on_after(delay) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught:
                self.is_behind = self.has_missed = True

    async def _step(self) -> float | None:
        """Do one thing; return the seconds until the next one, None at the end."""
        while self._news:
            await self._take(self._news.pop(0))

        def op(database: Database) -> tuple[Call | None, bool, int]:
            call = rows.load(database, self.call)
            return call, call is not None and rows.is_wanted(database, call), database.now

        call, is_wanted, now = await self._storage.read(op)
        if call is None or call.state == "ended" or call.owner != self._calls._service.instance:  # noqa: SLF001 - of this module
            return None
        if not self._calls.is_connected.is_set():
            with anyio.move_on_after(_LONGEST_WAIT_S):
                await self._calls.is_connected.wait()
            return 0.0
        if now > call.deadline + _GRACE_MS:
            await self._give_up(call, errors.deadline_expired())
            return None
        reach = self._calls.reach
        try:
            delay = await self._talk(call, is_wanted=is_wanted)
        except NoAnswerError:
            self._unsure = True
            reach.failed(call.peer)
            return self._next_wait()
        except StanzaError as error:
            (reach.answered if error.application else reach.failed)(call.peer)
            return await self._refused(call, error)
        reach.answered(call.peer)
        return delay

    async def _talk(self, call: Call, *, is_wanted: bool) -> float | None:
        to, from_ = JID.parse(call.address), JID.parse(call.sender)
        ask = partial(self._kernel.stream.router.call_any, to=to, from_=from_)
        if call.state == "unanswered":
            if not is_wanted and not self._unsure:
                await self._end(failure_of(errors.remote_failure(repeatable=True)))
                return None
            request = await self._calls.grants.signed(call)
            answer = await ask("set", payload=request, expected=(Result, Accepted))
            self._wait = _FIRST_WAIT_S
            if isinstance(answer, Result):
                await self._end(answer)
                return None
            assert isinstance(answer, Accepted)
            await self._change(state="accepted", remote=answer.task)
            # An event that came before this answer belonged to no call.
            self.is_behind = True
            return 0.0
        if not is_wanted:
            cancel = Cancel(id=call.remote or "")
            await self._take(await ask("set", payload=cancel, expected=(Task,)))
            return _POLL_S
        if call.reply is not None:
            await self._send_reply(call, to, from_)
            return 0.0
        if self.is_behind:
            self.is_behind = False
            try:
                await self._catch_up(call, partial(ask, "get"))
            except StanzaError:
                self.is_behind = True
                raise
        self._wait = _FIRST_WAIT_S
        return _POLL_S

    async def _catch_up(self, call: Call, get: Callable[..., Awaitable[Any]]) -> None:
        """Ask for the task of the peer, and for open questions of tasks that the peer has started
        for it.
        """
        await self._take(await get(payload=Task(id=call.remote or ""), expected=(Task,)))
        if not self.has_missed:
            return
        waiting = await get(payload=Tasks(state="input-required"), expected=(Tasks,))
        for one in waiting.tasks:
            if one.thread == call.id and one.id != call.remote:
                found = await get(payload=Task(id=one.id), expected=(Task,))
                await self._take(found if found.confirm is None else found.confirm)
        self.has_missed = False

    async def _send_reply(self, call: Call, to: JID, from_: JID) -> None:
        reply = read(call.reply or "", InputAnswer, Decision)
        assert reply is not None
        try:
            await self._kernel.stream.router.call_optional(*("set", to, reply, Task), from_=from_)
        except NoAnswerError:
            raise
        except StanzaError as error:
            if not error.application or isinstance(error.application[0], Retry):
                raise
            # It was decided otherwise, or has expired: the task of the peer says what follows.
            _log.info("a peer does not take an answer", peer=call.peer, reason=str(error))
        await self._change(question=None, reply=None)
        # Another question may have come meanwhile, and replaced this one.
        self.is_behind = self.has_missed = True

    async def _take(self, news: Task | Confirm) -> None:
        """Take what the peer says about its task, or asks."""
        if isinstance(news, Confirm):
            await self._ask(news)
            return
        call = await self._storage.read(lambda db: rows.load(db, self.call))
        if call is None:
            return
        if news.state == "input-required" and news.input is not None:
            await self._ask(news)
        elif news.id == call.remote and (news.revision or 0) >= self._revision:
            self._revision = news.revision or 0
            await self._take_task(call, news)

    async def _take_task(self, call: Call, task: Task) -> None:
        match task.state:
            case "completed" if task.result is not None:
                await self._end(task.result)
            case "completed" | "failed" | "rejected" | "cancelled":
                cancelled = failure_of(errors.remote_failure(repeatable=False))
                await self._end(task.failure or cancelled)
            case "input-required" if task.confirm is not None:
                await self._ask(task.confirm)
            case "running" if task.progress is not None:
                await self._kernel.tasks.service.report(call.task, task.progress)

    async def _ask(self, question: Task | Confirm) -> None:
        call = await self._storage.read(lambda db: rows.load(db, self.call))
        if call is None:
            return
        asked = read(call.question, Task, Confirm) if call.question else None
        if isinstance(asked, Confirm) and asked.id == question.id:
            return
        if call.question != encode(question):
            await self._change(question=encode(question), reply=None)

    async def _refused(self, call: Call, error: StanzaError) -> float | None:
        """Handle an error of the peer, or of a server on the way to it."""
        condition = error.application[0] if error.application else None
        if isinstance(condition, Retry):
            return float(condition.after)
        if condition is not None and call.state == "unanswered":
            await self._end(failure_of(error, unknown=False))
            return None
        if condition is not None:
            # The peer does not know the task any more, or not the request about it.
            await self._give_up(call, error, unknown=True)
            return None
        waited = anyio.current_time() - self._began
        peer = next((one for one in self._kernel.settings.peer if one.name == call.peer), None)
        is_over = peer is None or waited >= peer.unreachable_s
        if call.state == "unanswered" and not self._unsure and is_over:
            made = errors.remote_failure(repeatable=True)
            made.text = f"It cannot be reached: {error}"
            await self._end(failure_of(made))
            return None
        return self._next_wait()

    async def _give_up(self, call: Call, error: StanzaError, *, unknown: bool = False) -> None:
        is_unknown = unknown or self._unsure or call.state == "accepted"
        await self._end(failure_of(error, unknown=is_unknown), unknown=int(is_unknown))

    async def _end(self, outcome: Result | Failure, unknown: int = 0) -> None:
        costs: dict[str, float | int] = {}
        usage = outcome.usage if isinstance(outcome, Result) else None
        if usage is not None and usage.cost_usd is not None:
            costs["usd"] = float(usage.cost_usd)
        if usage is not None and usage.tokens_in is not None:
            costs["tokens"] = usage.tokens_in + (usage.tokens_out or 0)
            costs["output"] = usage.tokens_out or 0
        # Otherwise it counts with all that it was allowed.
        call = await self._storage.read(lambda db: rows.load(db, self.call))
        receipt = None if call is None else await self._calls.receipts.ended(call, outcome)
        await self._change(
            state="ended",
            outcome=encode(outcome),
            unknown=unknown,
            question=None,
            receipt=receipt,
            **costs,
        )

    async def _change(self, **values: str | float | None) -> None:
        principals = await self._storage.write(
            lambda db: rows.change(db, self.call, **values), keep_trying=True
        )
        self._calls.requeued(principals)

    def _next_wait(self) -> float:
        wait, self._wait = self._wait, min(self._wait * 2, _LONGEST_WAIT_S)
        return wait * (0.75 + system.random() / 2)
