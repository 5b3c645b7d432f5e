"""All conversations: each message is taken in once, answered once, and in order."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.agent import sentences, turns
from component.agent.calling import Parked
from component.agent.directives import directed
from component.agent.engine import Answered, Engine
from component.agent.labels import ANSWERS_WITHIN_S, Labels, Persons
from component.agent.lanes import Lane, Lanes, Turn
from component.agent.live import Live
from component.agent.outlet import Outlet
from component.agent.parking import FIRST_WAIT_S, LONGEST_WAIT_S, Parking
from component.agent.profile import Away, Profile, Profiles
from component.agent.protocol import Incoming, Voice
from component.agent.run import Ask
from component.agent.thinking import Undivided
from component.agent.turns import Row, Wait, key_of
from component.memory.lines import SessionKey
from component.memory.sessions import Forgotten
from component.settings.agents import Loop
from component.storage import Storage, StorageError
from component.storage.database import Database
from component.storage.sqlite import process_clock
from xep.jid import JID

_log = structlog.get_logger("component.agent")

_TOLD_AT_TRY: Final = 2
"""Whoever waits for a disk hears of it once it has refused so often."""


class Doing(msgspec.Struct, frozen=True):
    """What an agent is at for somebody: a turn, messages that wait, turns that wait for a task."""

    running: bool
    waiting: int
    parked: int


class Conversations:
    """The room of the agents: messages come in, answers go out by the voice.

    Args:
        engine: runs turns.
        profiles: says how an agent is for a person, or that it does not answer now.
        storage: has the table `turns`.
        home: names this data directory among those that share a database.
        voice: sends what agents say.
        persons: tells people from all others.
        loop: the settings that bound turns.
        over: is told the id of each turn that is over.
        stream: what names the stream there is now; None while there is none.
        clock: milliseconds since 1970, UTC.
        answers_within_s: seconds in which a sender has to say what it is.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        profiles: Profiles,
        storage: Storage,
        home: str,
        voice: Voice,
        persons: Persons,
        loop: Loop,
        over: Callable[[str], None] = lambda _turn: None,
        stream: Callable[[], object | None] = lambda: True,
        clock: Callable[[], int] = process_clock,
        answers_within_s: float = ANSWERS_WITHIN_S,
    ) -> None:
        self._engine = engine
        self._profiles = profiles
        self._storage = storage
        self._home = home
        self._loop = loop
        self._clock = clock
        self._lanes = Lanes(self._changed)
        self._live: dict[SessionKey, Live] = {}
        self._parking = Parking(storage, home, clock, self._go_on)
        self._outlet = Outlet(voice, storage, over)
        self._labels = Labels(persons, stream, self._labelled, answers_within_s)
        self._group: TaskGroup | None = None

    # What comes in.

    async def received(self, incoming: Incoming) -> None:
        """Take a message in: when this returns it is on disk and will be answered.

        Who has too many waiting is told so, and this one is not taken. One that is there already
        is not taken twice. Raises StorageError, and then it is not taken.
        """
        key = key_of(incoming)
        count = self._lanes.waiting(incoming.principal)
        if count >= self._loop.waiting_per_principal:
            self._outlet.mention(incoming, "full", sentences.TOO_MANY.format(count=count))
            return
        turn = Turn(incoming)
        self._labels.look(turn)  # who has to be asked is, while it is written
        # It has its place before it is on disk, so that those of one session keep their order.
        lane = self._lanes.add(key, turn)
        stored, written, answered = False, False, self._outlet.take()
        try:
            stored = await self._storage.write(partial(self._insert, key, turn.incoming, answered))
            written = True
        finally:
            if not written:
                self._outlet.put_back(answered)
            if not stored:
                self._lanes.remove(lane, turn)
        if not stored:
            return
        turn.stored = True
        self._lanes.look(lane)

    def _labelled(self, turn: Turn) -> None:
        """It is known who wrote it."""
        lane = self._lanes.of(key_of(turn.incoming))
        if lane is not None:
            self._lanes.look(lane)

    def _changed(self, lane: Lane) -> None:
        """What is next in a lane can begin, or join what is under way."""
        live = self._live.get(lane.key)
        if live is not None:
            live.said_more()
        self._go()

    def _insert(
        self, key: SessionKey, incoming: Incoming, answered: Sequence[str], db: Database
    ) -> bool:
        # In this order: what was just answered and comes again is there already.
        added = turns.insert(db, self._home, key, incoming)
        turns.delete(db, answered)
        return added

    def connected(self) -> None:
        """There is a stream again: say what could not be said, ask who could not be asked."""
        self._outlet.connected()
        self._labels.connected()

    async def ended(self, task: str) -> None:
        """A task is over: whoever waits for it goes on. For tasks of others nothing happens."""
        turn = self._parking.waiting_for(task)
        if turn is not None:
            await self._parking.wake(turn)
            return
        for live in self._live.values():
            live.ended.add(task)  # it may be about to wait for it

    # The work.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Answer messages until cancelled, beginning with those of a life before.

        Raises StorageError if those cannot be read.
        """
        rows = await self._storage.read(partial(turns.of_home, home=self._home))
        async with anyio.create_task_group() as group:
            self._parking.open(group)
            self._take_up(rows)
            self._group = group
            self._outlet.open(group)
            self._labels.open(group)
            task_status.started()
            try:
                self._go()
                await anyio.sleep_forever()
            finally:
                self._group = None
                self._parking.open(None)
                self._outlet.open(None)
                self._labels.open(None)
                group.cancel_scope.cancel()

    def _take_up(self, rows: Sequence[Row]) -> None:
        known = {one.incoming.id for lane in self._lanes.all() for one in lane.waiting}
        found: dict[str, Turn] = {}
        for row in rows:
            if row.incoming.id in known:
                continue
            joined = row.wait.joined if row.wait is not None else None
            if joined in found:
                found[joined].joined.append(row.incoming)
            else:
                found[row.incoming.id] = Turn(
                    row.incoming, stored=True, resumed=True, wait=row.wait
                )
        # The latest first, each before the others: what came since stands behind them.
        for turn in reversed(found.values()):
            until = turn.wait.until if turn.wait is not None else None
            if until is None:
                self._labels.look(turn)
                self._lanes.add(key_of(turn.incoming), turn, first=True)
            else:
                self._parking.add_until(turn, until)

    def _go(self) -> None:
        """Begin what may begin."""
        group = self._group
        if group is None:
            return
        while self._lanes.running < self._loop.turns_total:
            lane = self._lanes.begin()
            if lane is None:
                return
            assert lane.running is not None, "it has just begun"
            live = Live(self._lanes, lane, lane.running, self._join)
            self._live[lane.key] = live
            group.start_soon(self._work, lane, live)

    async def _work(self, lane: Lane, live: Live) -> None:
        turn, began, outcome = live.turn, monotonic(), "failed"
        try:
            with live.scope:
                outcome = await self._turn(lane, live)
            if live.scope.cancelled_caught and live.stopped:
                outcome = "stopped"
                await self._end(lane.key, turn)
        except StorageError as error:
            outcome = "postponed"
            self._postpone(lane, turn, error)
        except Exception:  # noqa: BLE001 - a mistake of ours must not end everybody's conversations
            _log.exception("a message cannot be answered", turn=turn.incoming.id)
            self._outlet.say(turn, sentences.BROKE)
        finally:
            del self._live[lane.key]
            self._lanes.end(lane)
            live.done.set()
            self._engine.observer.turn(lane.key.agent, outcome, monotonic() - began)
            self._go()

    async def _turn(self, lane: Lane, live: Live) -> str:
        turn = live.turn
        profile = await self._profiles(lane.key)
        if isinstance(profile, Away) and turn.resumed:
            profile = profile.begun or profile
        if isinstance(profile, Away):
            if turn.resumed:  # what it has begun before, a person may still be asked about
                gone = Profile(agent=lane.key.agent)
                await self._engine.stop(self._ask(lane.key, turn, gone))
            self._outlet.say(turn, profile.sentence)
            return "away"
        self._outlet.composing(turn, True)
        if live.more():
            await live.take()
        ask = self._ask(lane.key, turn, profile, live)
        try:
            outcome = await self._engine.turn(ask)
        except StorageError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the person hears of it and others go on
            _log.exception("a turn broke", turn=ask.id, agent=lane.key.agent)
            outcome = await self._engine.broke(ask, sentences.BROKE)
        if isinstance(outcome, Parked):
            await self._park(lane.key, live, outcome)
            return "parked"
        return await self._answer(turn, outcome)

    def _ask(self, key: SessionKey, turn: Turn, profile: Profile, live: Live | None = None) -> Ask:
        def notice(sentence: str) -> None:
            self._outlet.mention(turn.incoming, "notice", sentence)

        held = self._parking.of(key)
        return Ask(
            id=turn.incoming.id,
            key=key,
            profile=profile,
            messages=turn.messages,
            resumed=turn.resumed,
            attention=Undivided() if live is None else live,
            notice=notice,
            held=held,
            may_archive=not held,
        )

    def _postpone(self, lane: Lane, turn: Turn, error: StorageError) -> None:
        """The disk refuses: the turn is tried again, and nothing of its session before it."""
        wait = min(FIRST_WAIT_S * 2**turn.tries, LONGEST_WAIT_S)
        _log.warning("a turn has to wait", turn=turn.incoming.id, reason=str(error), seconds=wait)
        turn.tries += 1
        if turn.tries == _TOLD_AT_TRY:
            self._outlet.mention(turn.incoming, "no-disk", sentences.NO_DISK)
        turn.resumed = True
        turn.stored = False
        self._lanes.add(lane.key, turn, first=True)

        async def again() -> None:
            await anyio.sleep(wait)
            turn.stored = True
            self._lanes.look(lane)

        if self._group is not None:
            self._group.start_soon(again)

    # What goes out.

    async def _answer(self, turn: Turn, answer: Answered) -> str:
        said = directed(answer.text)
        if said.silent or not said.text.strip():
            self._outlet.composing(turn, False)
            self._outlet.answered(turn.ids)
            return "silent"
        if said.delay_s and not turn.due:
            until = self._clock() + round(said.delay_s * 1000)
            await self._parking.until(turn, until)
            self._outlet.composing(turn, False)
            return "delayed"
        self._outlet.say(turn, said.text)
        return "excused" if answer.excused else "answered"

    # What waits.

    async def _join(self, ids: Sequence[str], turn: str) -> None:
        wait = Wait(joined=turn)
        await self._storage.write(partial(turns.wait, turns=ids, wait=wait))

    async def _park(self, key: SessionKey, live: Live, parked: Parked) -> None:
        turn = live.turn
        await self._parking.until_ended(turn, key, parked.tasks)
        self._outlet.composing(turn, False)
        if not live.ended.isdisjoint(parked.tasks):
            self._parking.wake_soon(turn.incoming.id)
        elif parked.new and not parked.question:
            what = f"waits-{parked.round}"
            self._outlet.mention(turn.incoming, what, sentences.STILL_AT_IT)

    def _go_on(self, turn: Turn) -> None:
        """Let a turn that has waited have its place before those that wait for theirs."""
        self._labels.look(turn)
        self._lanes.add(key_of(turn.incoming), turn, first=True)

    # What people want of a conversation.

    async def stop(self, agent: str, principal: JID) -> str:
        """Stop everything that an agent does for a principal: what is under way, what waits for a
        task or to be said, and messages whose turn has not come. Returns a sentence for the person.
        """
        async with self._held(SessionKey(agent, principal)) as stopped:
            return sentences.STOPPED if stopped else sentences.NOTHING_TO_STOP

    async def new(self, agent: str, principal: JID) -> bool:
        """Begin a new conversation; what is under way is stopped first. False if there was none.

        Raises StorageError.
        """
        key = SessionKey(agent, principal)
        async with self._held(key):
            return await self._engine.sessions.archive(key) is not None

    async def forget(self, agent: str, principal: JID) -> Forgotten:
        """Erase a conversation and what is known of a person; what is under way is stopped first.

        Raises StorageError.
        """
        key = SessionKey(agent, principal)
        async with self._held(key):
            return await self._engine.sessions.forget(key)

    async def stop_agent(self, agent: str) -> int:
        """Stop all that an agent does for anybody. Returns in how many conversations."""
        keys = {lane.key for lane in self._lanes.all()} | self._parking.keys()
        count = 0
        for key in keys:
            if key.agent == agent:
                async with self._held(key) as stopped:
                    count += stopped > 0
        return count

    def doing(self, agent: str, principal: JID) -> Doing:
        """What an agent is at for a principal."""
        key = SessionKey(agent, principal)
        lane = self._lanes.of(key)
        return Doing(
            running=key in self._live,
            waiting=0 if lane is None else len(lane.waiting),
            parked=len(self._parking.of(key)),
        )

    @asynccontextmanager
    async def _held(self, key: SessionKey) -> AsyncIterator[int]:
        """Stop a conversation, and let nothing of it begin for the time of the context. The value
        is how many turns were stopped.
        """
        lane, stopped = self._lanes.hold(key), 0
        try:
            live = self._live.get(key)
            if live is not None:
                live.stop()
                await live.done.wait()
                stopped += 1
            for turn in [one for one in lane.waiting if one.stored or one.resumed]:
                # Somebody else may be stopping the same conversation.
                if self._lanes.remove(lane, turn):
                    await self._end_or_keep(key, turn)
                    stopped += 1
            for parked in self._parking.of(key):
                found = await self._parking.take(parked)
                if found is not None:
                    await self._end_or_keep(key, found)
                    stopped += 1
            yield stopped
        finally:
            self._lanes.release(lane)

    async def _end_or_keep(self, key: SessionKey, turn: Turn) -> None:
        """End a turn that was taken from those that wait; one that cannot be ended waits again."""
        try:
            await self._end(key, turn)
        except BaseException:  # most likely the one who wanted the stop is gone
            turn.resumed = True
            self._lanes.add(key, turn, first=True)
            raise

    async def _end(self, key: SessionKey, turn: Turn) -> None:
        """Leave on record that a turn was stopped."""
        self._outlet.composing(turn, False)
        self._labels.now(turn)
        try:
            profile = await self._profiles(key)
            if isinstance(profile, Away):
                profile = Profile(agent=key.agent)
            await self._engine.stop(self._ask(key, turn, profile))
        except StorageError as error:
            _log.warning("nothing is on record of a stop", turn=turn.incoming.id, reason=str(error))
        self._outlet.answered(turn.ids)
