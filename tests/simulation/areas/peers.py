"""Agents of other domains: that of the first one has the second one work, and that the third one.

Only some lives have them, since every service that runs takes time.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import anyio
import msgspec

from component.skills import Skill
from component.store.database import Database
from tests.kit.model import Script
from tests.kit.process import StepCounter
from tests.kit.service import AGENT, Kit, make_settings_of
from tests.simulation.area import Area
from tests.simulation.history import Passing
from tests.simulation.life import CALLERS, DAY_S, PEOPLE, REACTIONS, Action, Reaction
from tests.simulation.peer_rules import (
    DELEGATES,
    LAST,
    MIDDLE,
    Asked,
    Authority,
    Spending,
    Stops,
)
from tests.simulation.peer_skills import first_skills, last_skills, middle_skills, reader
from tests.simulation.people import Resident
from tests.simulation.rules import TASK, Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

DOMAINS: Final = (AGENT, MIDDLE, LAST)
ONE_LIFE_IN: Final = 2
_QUIET_S: Final = 1.5 * DAY_S
"""Seconds without faults, after which no work of peers may be open."""
_SKILLS: Final = (
    *("search_for", "choose_for", "collect_for", "collect_for", "consult_for", "consult_for"),
    *("erase_for", "erase_for", "read_for", "first_for", "sleep_for", "sleep_for"),
    *("wipe_for", "hidden_for", "circle_for"),
)
_ENDED: Final = "('completed', 'failed', 'rejected', 'cancelled')"

Trouble = Literal["", "kill", "part"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A person or a program has agents of other domains do something, while something fails.

    Attributes:
        wait: seconds since the job before this one.
        who: wants it.
        skill: of the agent in the middle.
        trouble: what fails: a service is killed, or the link between two domains is cut.
        after: seconds until then, or steps of the service.
        which: the service; or the domain whose links with the others are not cut.
        seconds: how long that lasts.
    """

    wait: float
    who: str
    skill: str
    reaction: Reaction = "approve"
    cancel_after: float | None = None
    trouble: Trouble = ""
    after: int = 0
    which: int = 0
    seconds: float = 0.0


class Delegate(Action, frozen=True, kw_only=True):
    """There are agents of other domains for some time, and work for them."""

    jobs: tuple[Job, ...]


def _job(chance: Random) -> Job:
    trouble: Trouble = chance.choice(("", "kill", "kill", "part"))
    most = chance.choice((1, 30, 300, 2000) if trouble == "kill" else (1, 1, 20, 300))
    longest = (0.0, 5.0, 600.0) if trouble == "kill" else (2.0, 60.0, 600.0, 5 * 3600.0)
    return Job(
        wait=chance.choice((0.0, 0.1, 3.0, 300.0, 1800.0)) * chance.random(),
        who=chance.choice((*PEOPLE, *CALLERS, *CALLERS)),
        skill=chance.choice(_SKILLS),
        reaction=chance.choice(REACTIONS),
        cancel_after=chance.choice((None, None, None, 0.0, 0.1, 5.0, 60.0)),
        trouble=trouble,
        after=chance.randint(1, most),
        which=chance.randrange(3),
        seconds=chance.choice(longest) * chance.random(),
    )


def _delegate(chance: Random, at: float, number: int) -> Delegate:
    jobs = tuple(_job(chance) for _ in range(chance.randint(3, 15)))
    return Delegate(at=at, number=number, jobs=jobs)


class Peers(Area):
    """Agents of other domains, once in some lives."""

    draws: ClassVar = {_delegate: 3}
    actions = (Delegate,)
    rules = (Asked, Authority, Stops, Spending)

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        chance = Random(f"peers {world.life.seed}")
        actions = [one for one in world.life.actions if isinstance(one, Delegate)]
        self._first = actions[0] if actions and chance.randrange(ONE_LIFE_IN) == 0 else None
        self._armed: dict[str, StepCounter] = {}
        self._peers = _sections(chance)
        self._delay_s = chance.choice((0.0, 0.01, 0.3, 3.0))
        self._thread_s = chance.choice((0.0, 0.0, 0.003, 0.1))

    def skills(self) -> Sequence[Skill]:
        """Return what the first agent offers to the last one."""
        return () if self._first is None else first_skills(self.world.outside)

    async def perform(self, action: Any) -> None:
        """Let there be agents of other domains, and work for them."""
        assert isinstance(action, Delegate)
        world = self.world
        if action is not self._first:
            return
        if self._delay_s:
            world.xmpp.delay = lambda: self._delay_s * world.chance.random()
        if self._thread_s:
            world.system.thread_s = lambda: self._thread_s * world.chance.random()
        world.xmpp.passing = self._passing
        others = (
            self._run(MIDDLE, None, middle_skills(world.outside)),
            self._run(LAST, reader(world.history), last_skills(world.outside)),
        )
        self._use({"peer": self._peers[AGENT]})
        await anyio.sleep(10 * world.chance.random())
        for number, job in enumerate(action.jobs):
            await anyio.sleep(job.wait)
            world.group.start_soon(self._do, job, f"x{1000 * action.number + number}")
        await anyio.sleep(max(job.seconds for job in action.jobs))
        self.heal()
        await anyio.sleep(_QUIET_S)
        await self._check(others)
        for kit in others:
            world.retire(kit)
        world.system.thread_s = world.xmpp.delay = None
        self._use({})

    def _use(self, sections: Mapping[str, Any]) -> None:
        """Let the first service have other sections from now on: an operator restarts it."""
        world, kit = self.world, self.world.kit
        kit.settings = make_settings_of(
            world.directory, world.sections | sections, world.talker.script
        )
        if kit.process.is_alive:
            world.history.fault("stop", "an operator changes the peers")
            kit.service.stop()

    def _run(self, domain: str, model: Script | None, skills: Sequence[Skill]) -> Kit:
        world = self.world
        host = domain.partition(".")[2]
        sections = {
            "server": {
                "component_domain": domain,
                "keepalive_s": 1800,
                "read_timeout_s": 1800,
            },
            "agent": {"allowed_domains": [host], "notice": ""},
            "limits": {"inline_s": 2},
            "peer": self._peers[domain],
        }
        settings = make_settings_of(world.directory / host, sections, model)
        world.xmpp.add_service(domain, settings.server.component_secret.get_secret_value())
        kit = Kit(settings, world.group, world.xmpp, world.system, model, skills)
        world.group.start_soon(world.serve, kit)
        return kit

    def _passing(self, sender: str, receiver: str, xml: str) -> None:
        if sender in DOMAINS and receiver in DOMAINS:
            self.world.history.add(Passing(self.world.history.now(), sender, receiver, xml))

    async def _do(self, job: Job, label: str) -> None:
        """Have something done, and let something fail meanwhile."""
        world, who = self.world, self.world.residents[job.who]
        world.reactions[label] = job.reaction
        who.wants(f"{DELEGATES} {job.skill} {label}")
        async with anyio.create_task_group() as group:
            if job.trouble == "kill":
                self._kill(self._kits[DOMAINS[job.which]], job)
            elif job.trouble == "part":
                group.start_soon(self._part, job)
            if job.who in PEOPLE:
                await who.say(f"/run research.{job.skill} label={label}", f"{job.who}-{label}")
                return
            if job.cancel_after is not None:
                group.start_soon(self._cancel, who, label, job.cancel_after)
            await who.execute(label, f"research.{job.skill}", "auto")

    @property
    def _kits(self) -> dict[str, Kit]:
        return {kit.agent: kit for kit in self.world.kits}

    async def _cancel(self, who: Resident, label: str, after: float) -> None:
        await anyio.sleep(after)
        who.wants(f"to cancel {label}")
        payload = f"<cancel xmlns='{TASK[1:-1]}' request='{label}'/>"
        await who.iq("set", payload, f"cancel-{label}")

    async def _part(self, job: Job) -> None:
        world = self.world
        await anyio.sleep(job.after * world.chance.random())
        pair = frozenset(DOMAINS) - {DOMAINS[job.which]}
        world.history.fault("peer", f"{sorted(pair)} are parted for {job.seconds:.0f} s")
        world.xmpp.parted.add(pair)
        await anyio.sleep(job.seconds)
        world.xmpp.parted.discard(pair)
        world.history.fault("peer", f"{sorted(pair)} are joined")

    def _kill(self, kit: Kit, job: Job) -> None:
        world, process = self.world, kit.process
        before = self._armed.pop(kit.agent, None)
        if before is not None:
            before.remove()

        def strike() -> None:
            if process.is_alive:
                world.kills += 1
                kind: Literal["kill", "peer"] = "kill" if kit is world.kit else "peer"
                world.history.fault(kind, f"{kit.agent} is killed for {job.seconds:.0f} s")
                world.pauses[kit] = job.seconds
                kit.strike()

        if process.is_alive:
            self._armed[kit.agent] = StepCounter(process, job.after, strike)

    def heal(self) -> None:
        """End all faults."""
        for one in self._armed.values():
            one.remove()
        self.world.xmpp.parted.clear()

    async def finish(self) -> None:
        """Check that no work of a peer is open. Raises Violation."""
        if self._first is not None:
            await self._check(self.world.kits)

    async def _check(self, kits: Sequence[Kit]) -> None:
        """Check that no work of a peer is open at these services. Raises Violation."""
        for kit in kits:
            of_peers = "skill LIKE 'research.%'" if kit is self.world.kit else "1 = 1"
            found = await kit.kernel.storage.read(partial(_open_work, of_peers=of_peers))
            if found:
                raise Violation(f"{kit.agent} has open work: {found}")


def _open_work(database: Database, of_peers: str) -> list[tuple[Any, ...]]:
    calls = "SELECT 'call', id, state FROM peer_calls WHERE state <> 'ended'"
    tasks = f"SELECT skill, id, state FROM tasks WHERE state NOT IN {_ENDED} AND {of_peers}"
    return [*database.execute(calls).fetchall(), *database.execute(tasks).fetchall()]


def _sections(chance: Random) -> dict[str, list[dict[str, Any]]]:
    """Return the peers of each service: not every life has the same."""
    grants = {"requires": "grant", "asks_back": "always"} if chance.random() < 0.3 else {}
    costs = {"call_usd": 0.2} if chance.random() < 0.3 else {}
    asks = {} if chance.random() < 0.3 else {"confirm": "never"}
    first = {"name": "research", "jid": MIDDLE, "skills": ["*"]}
    first["read_only"] = ["search_for", "choose_for", "sleep_for"]
    called = {"name": "archive", "jid": LAST, "skills": ["*"], "confirm": "never"}
    called["read_only"] = ["search", "choose", "nap", "sleep"]
    allowed = (
        *("search", "choose", "collect", "consult", "erase"),
        *("read", "circle", "nap", "sleep"),
    )
    origins = [AGENT.partition(".")[2], MIDDLE.partition(".")[2]]
    offered = [*allowed, "wipe"]
    return {
        AGENT: [
            first | costs | asks,
            {"name": "last", "jid": LAST, "offers": ["circled"], "origins": ["*"]},
        ],
        MIDDLE: [
            {
                "name": "press",
                "jid": AGENT,
                "offers": ["*_for"],
                "delegates": [f"archive.{one}" for one in (*allowed, "hidden")],
                **grants,
            },
            called,
        ],
        LAST: [
            {"name": "research", "jid": MIDDLE, "offers": offered, "origins": origins, **grants},
            {"name": "first", "jid": AGENT, "skills": ["*"], "confirm": "never"},
        ],
    }
