"""Calls of skills of peers: stored before they are sent, and followed without a slot.

The task here waits (`Context.wait_for_event`) while the call is a row, and a `Follower` sends and
follows it. A call that may be repeated and has no budget is sent at once, and gets a row only if
the peer needs longer. Questions of the peer wake the task here, which asks its own principal.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component import system
from component.agent_addresses import canonical_address
from component.budget.protocol import Amount
from component.config.peers import Peer
from component.features.peers import asked, rows
from component.features.peers.follower import Follower, cancelling
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
    schema_mismatch,
)
from component.features.peers.rows import Call
from component.grants import PublicKey
from component.kernel.kernel import Kernel
from component.link.router.table import Request, StanzaRoute
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.errors import RemoteError, SkillInterrupted
from component.skills.inputs import Arguments
from component.skills.operations import Parked
from component.skills.outputs import SkillResult
from component.skills.skill import Invoke
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks.protocol import Notice
from xep.binding import ContentError, encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.errors import GrantRequired, Retry, UnknownSkill
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.fluux_agent.task import Task
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_LOOK_S: Final = 60.0
"""How often calls are looked for whose instance has ended."""
_RETRY_S: Final = 1.0
_MOST_NUDGED: Final = 1000
_MESSAGES: Final = frozenset(("chat", "normal", "headline"))

Answer: TypeAlias = Result | Accepted
"""How a peer answers a request that it admits."""


class PeerCalls:
    """Sends the calls of this instance, and receives what peers report."""

    def __init__(self, kernel: Kernel, grants: PeerGrants, receipts: Receipts) -> None:
        self._kernel = kernel
        self.grants, self.receipts, self.reach = grants, receipts, Reach()
        self._storage = kernel.storage
        self._service = kernel.tasks.service
        self._is_own = kernel.stream.addresses.is_own
        self._follower = partial(Follower, kernel, grants, receipts, self.reach)
        self._followers: dict[str, Follower] = {}
        self._begun: list[Follower] = []
        """Followers of calls that have just been stored."""
        self._unwanted: list[Call] = []
        """Calls without a row that nobody waits for any more."""
        self._nudges: list[dict[str, str]] = []
        self._nudging: dict[str, bool] = {}
        """Calls and tasks that are being written, and whether there is more for them since."""
        self._prefixes = tuple(f"{peer.name}." for peer in kernel.settings.peer)
        self._demanding: set[str] = set()  # peers that want a grant for all that they do
        self._work = anyio.Event()
        if kernel.stream.is_connected():
            self.reach.is_connected.set()

    # The skill.

    def invoke_of(self, peer: Peer, skill: str) -> Invoke:
        """Return what calls a skill of a peer."""

        async def invoke(arguments: Arguments, context: Context | None) -> SkillResult:
            assert context is not None, "it wants a context"
            call = None
            if context.is_stored:  # otherwise it is the first run, and no call is part of its task
                call = await self._storage.read(lambda db: rows.load(db, context.key))
            if call is None:
                return await self._begin(peer, skill, arguments, context)
            return await self._go_on(peer, call, context)

        return invoke

    async def _begin(
        self, peer: Peer, skill: str, arguments: Arguments, context: Context
    ) -> SkillResult:
        """Call a skill: at once, or as a row, for which the task here waits. Raises RemoteError."""
        self.reach.check(peer.name)
        sender = canonical_address(JID.parse(context.address))
        new, execute = new_call(peer, skill, arguments, context, sender)
        execute = msgspec.structs.replace(execute, version=self._version(context.skill))
        left = await self.left(context)
        sent: Call | None = None  # what the peer may have accepted, and no row says so yet
        is_stored = False
        try:
            if self._needs_no_row(peer, skill, context):
                # After a kill it is another request: its deadline and its trace are.
                execute = msgspec.structs.replace(execute, request=system.token_hex(16))
                # What the peer reports before the call is stored must not be lost.
                self._followers[new.id] = self._follower(new)
                answer = await self._at_once(peer, new, execute)
                if isinstance(answer, Result):
                    del self._followers[new.id]
                    return self._result(peer, skill, answer)
                if isinstance(answer, Accepted):
                    new = msgspec.structs.replace(new, state="accepted", remote=answer.task)
                if isinstance(answer, Accepted) or not answer.application:
                    sent = msgspec.structs.replace(new, request=encode(execute))
                else:  # it was not admitted, so it can be another request
                    execute = msgspec.structs.replace(execute, request=context.key)
            new = msgspec.structs.replace(new, owner=self._service.instance)
            allot = partial(allotted, peer=peer, call=new, execute=execute, left=left)
            # The keys are looked up here: an operation of the database runs in another thread.
            keys = self.grants.known_keys(new)

            def store(database: Database) -> bool:
                nonlocal is_stored
                is_stored = True
                return self._store(allot, keys, database)

            await context.wait_for_event(new.id, store)
        except BaseException as error:
            if is_stored and isinstance(error, Parked):  # after the commit
                self._begun.append(self._followers.setdefault(new.id, self._follower(new)))
                self._work.set()
                raise
            self._followers.pop(new.id, None)
            if sent is not None:  # the task here was cancelled before the commit
                self._unwanted.append(sent)
                self._work.set()
            raise
        raise AssertionError("The function is left before.")

    async def _go_on(self, peer: Peer, call: Call, context: Context) -> SkillResult:
        """Ask what the peer asks, wait for the peer, or return its outcome. Raises RemoteError."""
        call_id = call.id
        if rows.is_asking(call):
            reply = await self._storage.read(partial(asked.approval, peer=peer, call=call))
            reply = reply or await asked.reply(peer, call, context, self._is_own)
            await self._storage.write(lambda db: rows.change(db, call_id, reply=encode(reply)))
            if call_id in self._followers:
                self._followers[call_id].wake()
            else:
                self._nudge(call=call_id, address=call.address)
        outcome = call.result()
        if outcome is None:
            await context.wait_for_event(call_id, partial(rows.is_pending, call=call_id))
        if isinstance(outcome, Result):
            return self._result(peer, read(call.request, Execute).skill, outcome)
        if call.unknown:
            raise SkillInterrupted(
                f"{peer.name} did not answer. Whether it has done this is not known."
            )
        raise error_of(outcome, peer.name)

    def _version(self, name: str) -> str | None:
        """Return the version of a skill here that its peer has named; so no other one runs than
        was shown to a model or a person.
        """
        skill = self._kernel.environment.catalog.registry.get(name)
        version: str | None = None if skill is None else skill.claims.get("version")
        return version

    def _result(self, peer: Peer, called: str, result: Result) -> SkillResult:
        """Return a result as that of the skill here. Raises RemoteError: it is one of another
        skill, or does not fit the schema that the peer declares.
        """
        skill = self._kernel.tasks.find_skill(f"{peer.name}.{called}")
        wrong = schema_mismatch(None if skill is None else skill.output_schema, result)
        if result.skill != called:
            wrong = "it is the result of another skill"
        if wrong is None:
            return result_of(result)
        is_repeatable = pattern(peer.read_only).fullmatch(called) is not None
        error = errors.remote_failure(repeatable=is_repeatable)
        error.text = f"The result of {peer.name} is not what it declares: {wrong}"
        raise RemoteError(error)

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

    async def _at_once(self, peer: Peer, call: Call, execute: Execute) -> Answer | StanzaError:
        """Call a skill that may run again, without storing the call. Return the answer, or why
        there is none yet. Raises RemoteError.
        """
        to, from_ = JID.parse(call.address), JID.parse(call.sender)
        call = msgspec.structs.replace(call, request=encode(execute))
        ask = self._kernel.stream.router.call_any
        try:
            answer = await ask(*("set", to, execute, (Result, Accepted)), from_=from_)
        except StanzaError as error:
            if not error.application:
                self.reach.failed(peer.name)
                return error
            self.reach.answered(peer.name)
            if isinstance(error.application[0], GrantRequired):
                self._demanding.add(peer.name)
            if isinstance(error.application[0], GrantRequired | Retry):
                return error
            if isinstance(error.application[0], UnknownSkill):
                self.reach.outdated(peer.name)
            failure = failure_of(error)
            await self.receipts.ended(call, failure)
            raise error_of(failure, peer.name) from None
        except anyio.get_cancelled_exc_class():
            self._unwanted.append(call)
            self._work.set()
            raise
        self.reach.answered(peer.name)
        assert isinstance(answer, Result | Accepted)
        if isinstance(answer, Result):
            await self.receipts.ended(call, answer)
        return answer

    async def left(self, context: Context) -> Left:
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

    def _store(
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

    # The loop.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send and follow the calls of this instance until cancelled."""
        task_status.started()
        async with anyio.create_task_group() as group:
            group.start_soon(self._find_left, group)
            while True:
                await self._work.wait()
                self._work = anyio.Event()
                begun, self._begun = self._begun, []
                for follower in begun:
                    self._start(group, follower)
                nudges, self._nudges = self._nudges, []
                for nudge in nudges:
                    group.start_soon(self._write_nudge, nudge)
                unwanted, self._unwanted = self._unwanted, []
                for call in unwanted:
                    group.start_soon(self._cancel, call)

    async def _find_left(self, group: TaskGroup) -> None:
        """Follow the calls that were stored before this service has begun, and, now and then, those
        of other instances that have ended.
        """
        me = self._service.instance
        is_first = True
        while True:
            try:
                found = is_first or await self._storage.read(lambda db: rows.any_left(db, me))
                calls = (
                    await self._storage.write(lambda db: rows.open_calls(db, me)) if found else ()
                )
            except StorageError as error:
                log_failure(_log, "calls of peers have to wait", error)
                await anyio.sleep(_RETRY_S)
                continue
            is_first = False
            for call in calls:
                if call.id not in self._followers:
                    follower = self._followers[call.id] = self._follower(call)
                    # Whether its request was sent is not stored.
                    follower.is_unsure = follower.has_missed = True
                    self._start(group, follower)
            await anyio.sleep(_LOOK_S)

    def _start(self, group: TaskGroup, follower: Follower) -> None:
        if not follower.is_started:
            follower.is_started = True
            group.start_soon(self._follow, follower)

    async def _follow(self, follower: Follower) -> None:
        try:
            await follower.run()
        finally:
            self._followers.pop(follower.call, None)

    async def _write_nudge(self, call: Mapping[str, str]) -> None:
        """Write it, and again after a second if there is more: peers decide how much they send."""
        me, name = self._service.instance, call.get("call") or call["task"]
        is_wanted = True
        while is_wanted:
            self._nudging[name] = False
            try:
                await self._storage.write(lambda db: rows.nudge(db, me, **call))
            except StorageError as error:  # the other instance looks by itself once a minute
                log_failure(_log, "another instance does not learn of a call of a peer", error)
            await anyio.sleep(_RETRY_S)
            is_wanted = self._nudging[name]
        del self._nudging[name]

    async def _cancel(self, call: Call) -> None:
        """Tell a peer that the answer to a request is not wanted any more."""
        to, from_ = JID.parse(call.address), JID.parse(call.sender)
        with suppress(StanzaError):
            await self._kernel.stream.router.call_any(
                *("set", to, cancelling(call), (Task,)), from_=from_
            )

    def connected(self) -> None:
        """Ask for the tasks of peers again: their events may have been lost."""
        self.reach.is_connected.set()
        for follower in self._followers.values():
            follower.missed()

    def task_changed(self, notice: Notice) -> None:
        """A task has changed; perhaps one has ended that waits for a peer."""
        if not notice.final:
            return
        task = notice.task.id
        mine = [one for one in self._followers.values() if one.task == task]
        for follower in mine:
            follower.stop()
        if not mine and notice.request.skill.startswith(self._prefixes):
            self._nudge(task=task)

    # Several instances: a call has a follower on one, and stanzas reach any.

    def _nudge(self, **call: str) -> None:
        """Let the instance that follows a call look at it, if it is another one."""
        name = call.get("call") or call["task"]
        if name in self._nudging:
            self._nudging[name] = True
        elif self._kernel.stream.has_others() and len(self._nudging) < _MOST_NUDGED:
            self._nudging[name] = False
            self._nudges.append(call)
            self._work.set()

    async def nudged(self, calls: Collection[str] | None) -> None:
        """Look at these calls again, because another instance has something for them. Raises
        StorageError.
        """
        me = self._service.instance
        unwanted = await self._storage.read(lambda db: rows.unwanted(db, me))
        for follower in tuple(self._followers.values()):
            if follower.call in unwanted:
                follower.stop()
            elif calls is None or follower.call in calls:
                follower.missed()

    async def grants_changed(self, _grants: Collection[str] | None = None) -> None:
        """Cancel the calls of which the grants were revoked to end them. Raises StorageError."""
        await self.nudged(())

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
        thread = stanza.text_of("thread") or ""
        follower = self._followers.get(thread)
        if follower is None:
            self._nudge(call=thread, address=str(request.principal))
        elif follower.address == request.principal:
            follower.reported(news)
