"""A task service that runs scripts on a clock set by hand; it can be killed and reopened."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.from_thread import BlockingPortal

from component.app.schema import SCHEMA
from component.link.messages.delivery import Delivery, nothing_to_send
from component.skills import Context, Skill, SkillError, skill
from component.store import Storage
from component.store.clock import HOLD_MS
from component.tasks.request import Confirmation, Request, request_from
from component.tasks.service import Clocks
from tests.component.tasks.ledger import NOON
from tests.component.tasks.world import AGENT, Ear, World, living
from xep.binding import encode
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

T = TypeVar("T")

ANN = JID.parse("ann@a.example/desk")
BOB = JID.parse("bob@b.example/desk")
CAROL = JID.parse("carol@a.example/desk")
"""Approves what is guarded, and has no work of her own."""
REPLAY_S = 3 * 3600.0
RETENTION_S = 2 * 3600.0
EXPIRES_S = 3600.0
LIMIT_S = 60.0


class Choice(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked for."""

    colour: str


class Stage:
    """What the skills do, and where they wait. It outlives the process, as the world outside."""

    def __init__(self) -> None:
        self.began: Counter[tuple[str, int]] = Counter()
        """How often a step of the work with that label has begun."""
        self.keys: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.open: set[tuple[str, int]] = set()
        self.all_open: set[str] = set()
        self.waiting: dict[tuple[str, int], anyio.Event] = {}

    def begin(self, label: str, place: int, key: str) -> None:
        self.began[label, place] += 1
        self.keys[label, place].add(key)

    async def gate(self, label: str, place: int) -> None:
        here = (label, place)
        if here in self.open or label in self.all_open:
            return
        event = self.waiting[here] = anyio.Event()
        try:
            await event.wait()
        finally:
            self.waiting.pop(here, None)

    def let_on(self, label: str, place: int) -> None:
        self.open.add((label, place))
        if (label, place) in self.waiting:
            self.waiting[label, place].set()

    async def play(self, label: str, script: str, context: Context) -> str:
        """Do what a script says."""
        for place, letter in enumerate(script):
            if letter == "g":
                await self.gate(label, place)
            elif letter in "sS":

                async def work(key: str, place: int = place, letter: str = letter) -> int:
                    self.begin(label, place, key)
                    if letter == "S":
                        await self.gate(label, place)
                    return place

                assert await context.step("step", work, int) == place
            elif letter == "o":
                await context.output(f"o{place}", label, last=True)
            elif letter == "a":
                await context.ask("Which colour?", Choice)
            elif letter == "n":
                raise SkillError("no")
            elif letter == "x":
                raise RuntimeError("broken")
        return label

    def skills(self) -> list[Skill]:
        """Each of them twice: one that somebody has to confirm, and one that nobody has to."""
        made: list[Skill] = []
        for guard in ("", ".guarded"):

            @skill(name=f"durable{guard}", durable=True)
            async def durable(label: str, script: str, context: Context) -> str:
                return await self.play(label, script, context)

            @skill(name=f"repeatable{guard}", idempotent=True)
            async def repeatable(label: str, script: str, context: Context) -> str:
                return await self.play(label, script, context)

            @skill(name=f"atomic{guard}")
            async def atomic(label: str, script: str, context: Context) -> str:
                self.begin(label, -1, context.key)
                return await self.play(label, script, context)

            @skill(name=f"quick{guard}", read_only=True, inline=True)
            def quick(label: str, script: str) -> str:
                return label + script

            @skill(name=f"count{guard}", inline=True)
            def count(label: str, script: str) -> str:
                self.begin(label, -1, label)
                return label + script

            made += [durable, repeatable, atomic, quick, count]
        return made


class Guards:
    """Asks the principal and Carol before a guarded skill."""

    def needed(self, _request: Request, skill: Skill) -> bool:
        return skill.name.endswith(".guarded")

    def at_once(self, request: Request, skill: Skill) -> Confirmation | None:
        asked = (request.principal.bare, CAROL.bare)
        return Confirmation(asked, expires_s=EXPIRES_S) if self.needed(request, skill) else None

    async def find(self, request: Request, skill: Skill) -> Confirmation | None:
        return self.at_once(request, skill)


class Clock:
    """Milliseconds; a second goes by with every request."""

    def __init__(self) -> None:
        self.now = self.steady = NOON
        """The wall clock, which may be set, and what it would be if it were not."""

    def __call__(self) -> int:
        return self.now

    def passes(self, ms: int) -> None:
        self.now += ms
        self.steady += ms

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now / 1000, UTC)


class Told(Ear):
    """Holds every message against the order of revisions (EVT-008), and remembers the ends."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.wrong: list[str] = []

    def changed(self, notice: Any) -> Delivery:
        task = notice.task
        if task.revision < self.last.get(task.id, 0):
            self.wrong.append(f"{task.id}: {task.revision} after {self.last[task.id]}")
        self.last[task.id] = task.revision
        if notice.final:
            self.ends[task.id] = task.revision
        return nothing_to_send()


class Life:
    """One process after another on one database.

    Args:
        portal: where the event loop is.
        postgres: a new database; on it the clock is the server's.
        directory: where others may be made, preferably in memory.
    """

    def __init__(self, portal: BlockingPortal, postgres: str = "") -> None:
        self.portal = portal
        self.stage = Stage()
        self.clock = Clock()
        self.ear = Told()
        self.number = 0
        self._postgres = postgres
        self._skills = self.stage.skills()
        self._directory = Path(tempfile.mkdtemp(prefix="machine-"))
        self._ids = itertools.count()
        self.world: World
        self.start()

    # Processes.

    def start(self) -> None:
        self.number += 1
        self.stage.waiting.clear()
        self.ear.last.clear()
        self._life = self.portal.wrap_async_context_manager(self._living())
        self._life.__enter__()

    def kill(self) -> None:
        """End it without a word: nothing is drained."""
        self._life.__exit__(None, None, None)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._directory)

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        def opened() -> Any:
            return Storage.open(
                SCHEMA,
                self._directory,
                postgres=self._postgres,
                now=self.clock,
                elapsed=None if self._postgres else lambda: self.clock.steady,
            )

        how: dict[str, Any] = {
            "replay_s": REPLAY_S,
            "retention_s": RETENTION_S,
            "ask_expires_s": EXPIRES_S,
            "max_attempts": 1_000_000,  # what is set aside has tests of its own
        }
        clocks = Clocks(now=self.moment)
        if not self._postgres:
            clocks = Clocks(now=self.moment, boot_s=lambda: self.clock.steady / 1000)
        async with living(
            opened, *self._skills, ear=self.ear, clocks=clocks, approvers=Guards(), **how
        ) as self.world:
            await self.world.service.connected()
            yield

    def moment(self) -> datetime:
        """The time of the process; on PostgreSQL, which has a clock of its own, that of the day."""
        return datetime.now(UTC) if self._postgres else self.clock.moment

    # Calls, from outside the event loop.

    def do(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run it on the event loop."""

        async def bounded() -> T:
            with anyio.fail_after(LIMIT_S):
                return await work(*args)

        return self.portal.call(bounded)

    def pass_time(self, seconds: int) -> None:
        """Let time pass, and have it noticed as it would be within a minute."""
        self.clock.passes(seconds * 1000)
        self.portal.call(self.world.service._timer.wake)

    def set_clock(self, seconds: int) -> None:
        """Set the clock forward or back, and wait until it is believed."""
        self.clock.now += seconds * 1000
        self.do(self.world.storage.read, lambda database: database.now)
        self.pass_time(HOLD_MS // 1000)

    def set_inline_limit(self, seconds: float) -> None:
        """Set the inline limit."""
        limits: Any = self.world.service._limits
        msgspec.structs.force_setattr(limits, "inline_s", seconds)

    async def execute(
        self, who: JID, execute: Execute, stanza: str, times: int = 1
    ) -> list[Result | Accepted | StanzaError]:
        """As a handler does; several times at once if need be."""
        answers: list[Result | Accepted | StanzaError] = []

        async def once() -> None:
            try:
                request = request_from(
                    execute, requester=who, principal=who.bare, target=AGENT, stanza_id=stanza
                )
                answer = self.world.service.execute(request)
                if not isinstance(answer, Result | Accepted):
                    answer = await answer
                answers.append(answer)
            except StanzaError as error:
                answers.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(times):
                group.start_soon(once)
        return answers

    async def refused(self, work: Any) -> tuple[Any, StanzaError | None]:
        """What it gives, or what it is refused with."""
        try:
            return await work, None
        except StanzaError as error:
            return None, error


def text(answer: Result | Accepted | StanzaError) -> str:
    """An answer as it is sent."""
    return answer.encode() if isinstance(answer, StanzaError) else encode(answer)


def condition(error: StanzaError | None) -> str | None:
    """The application condition of an error."""
    if error is None:
        return None
    return type(error.application[0]).xml.local if error.application else error.condition
