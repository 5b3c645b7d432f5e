"""A service that a test runs, stops, kills and runs again."""

import shutil
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import trio
from anyio.abc import TaskGroup, TaskStatus
from trio._core import _run as scheduler
from trio.testing import wait_all_tasks_blocked

from component import system
from component.app.features import make_settings
from component.app.service import Service
from component.audit.files import files_in
from component.audit.lines import Line
from component.config import Settings
from component.config.llm import ModelChoice
from component.kernel.kernel import Kernel, Reloaded
from component.models.protocol import Model
from component.skills import Skill, declare, schema
from tests.kit.disk import Disk
from tests.kit.model import Script
from tests.kit.process import Process
from tests.kit.system import SimulatedSystem
from tests.kit.xmpp import Peer, Xmpp
from xep.jid import JID

AGENT: Final = "agent.capulet.example"
"""The address of the service, unless the settings give another one."""
_SECRET: Final = "secret"


_read_signature: Final = schema.signature_of
_signatures: Final[dict[tuple[object, tuple[type, ...], str], Any]] = {}


def _signature_of(function: Any, docs: Mapping[str, str]) -> Any:
    """Return a signature, read once: every start of a service declares the same skills."""
    hints = function.__annotations__
    # Functions that are made again and again have the same code, but may have classes of their own.
    classes = tuple(hint for hint in hints.values() if isinstance(hint, type))
    key = (
        function.__code__,
        classes,
        repr((function.__qualname__, hints, docs, function.__defaults__)),
    )
    if key not in _signatures:
        _signatures[key] = _read_signature(function, docs)
    return _signatures[key]


vars(declare)["signature_of"] = _signature_of


class Kit:
    """A running service, its server, its model and its clock.

    Attributes:
        settings: the settings of the service.
        service: the running service; another one after `restart`.
        xmpp: the server.
        model: the model of all agents; None if they have none.
        system: clocks and random numbers of the service.
        process: the process of the service; another one after `restart`.
    """

    service: Service

    def __init__(
        self,
        settings: Settings,
        group: TaskGroup,
        xmpp: Xmpp,
        system_: SimulatedSystem,
        model: Script | None,
        skills: Sequence[Skill],
        disk: Disk | None = None,
    ) -> None:
        self.settings = settings
        self._disk = disk
        self.xmpp = xmpp
        self.model = model
        self.system = system_
        self._skills = skills
        self.agent = settings.server.component_domain
        self.process = Process()
        self._group = group
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._token = trio.lowlevel.current_trio_token()

    @property
    def stanzas(self) -> Sequence[tuple[str, str]]:
        """All stanzas between server and service; see `Xmpp.stanzas`."""
        return self.xmpp.stanzas

    @property
    def kernel(self) -> Kernel:
        """The kernel of the running service."""
        assert self.service._subsystems is not None, "the service runs"
        return self.service._subsystems.kernel

    @property
    def is_open(self) -> bool:
        """Whether the service runs, and has opened its files."""
        service = getattr(self, "service", None)
        return self.process.is_alive and service is not None and service._subsystems is not None

    @property
    def ended(self) -> anyio.Event:
        """Is set when the running process has ended."""
        return self._ended

    def peer(
        self, jid: str, *, presence: str | None = "<presence/>", features: Sequence[str] = ()
    ) -> Peer:
        """Return a new client that is logged in as this full JID, and has sent this presence."""
        return Peer(self.xmpp, JID.parse(jid), self.agent, presence=presence, features=features)

    async def advance(self, seconds: float) -> None:
        """Let time pass; everything that is due meanwhile happens at its time.

        The loops of the service look for work every few seconds, so a simulated hour takes more
        than a second. `jump` is for longer times.
        """
        await anyio.sleep(seconds)

    async def jump(self, seconds: float, *, stride_s: float = 3600.0) -> None:
        """Let time pass in strides, as on a machine that is suspended for each of them.

        What is due in a stride happens at its end, and everybody waits before the next one.
        """
        clock: Any = trio.lowlevel.current_clock()
        over = clock.current_time() + seconds
        while (left := over - clock.current_time()) > 0:
            clock.jump(min(stride_s, left))
            await self.settled()

    async def settled(self) -> None:
        """Wait until everybody waits; no time passes."""
        await wait_all_tasks_blocked()

    async def audited(self) -> list[Line]:
        """Return the events of the audit log, in order."""
        audit = self.kernel.environment.monitoring.audit
        assert audit is not None, "the settings turn it on"
        await audit.settled()
        return [
            msgspec.json.decode(line, type=Line)
            for file in files_in(audit.directory)
            for line in file.read_bytes().splitlines()
        ]

    async def restart(self, *, kill: bool = False) -> None:
        """End the service, and run it again with the same files.

        With `kill` it has no chance to finish anything: its files are those of this moment, and
        nothing more is sent.
        """
        if kill:
            await self.kill()
        else:
            await self.stop()
        await self.start()

    async def reload(self, settings: str | Mapping[str, Any] = "") -> Reloaded:
        """Let the service read these sections in place of those before, as on SIGHUP; see
        `service`. Raises CommandError.
        """
        data = self.settings.storage.path.parent
        self.service.read = partial(make_settings_of, data, settings, self.model)
        found = await self.service.reload()
        await self.settled()
        return found

    async def stop(self) -> None:
        """Stop the service as an operator does."""
        self.service.stop()
        await self._ended.wait()

    async def kill(self) -> None:
        """End the service as `kill -9` does."""
        self.strike()
        await self.buried()

    def strike(self, *, power_fails: bool = False) -> list[str]:
        """Kill the process at once, without waiting: what it does from now on is not to be seen.

        With `power_fails` the whole machine stops, and what was not synced may be lost; returns
        what was. A function of another thread or of the scheduler may call this; `buried` has to
        follow.
        """
        assert self.process.is_alive, "it is killed once"
        self.process.is_alive = False
        path = self.settings.storage.path
        # The caller may be a task of another process, which does not do this.
        with self.process.entered():
            self._copy(power_fails=power_fails)
        lost: list[str] = []
        if self._disk is not None:
            lost = self._disk.copied(path, self._left, power_fails=power_fails)
        self.xmpp.disconnect(self.agent, self)
        self._token.run_sync_soon(self._scope.cancel)
        return lost

    def _copy(self, *, power_fails: bool) -> None:
        """Copy the files of a killed process."""
        path = self.settings.storage.path
        if not path.exists():
            return
        shutil.copytree(path, self._left, ignore=shutil.ignore_patterns("*.sock"))
        if not power_fails and (lock := path / "agent.lock").exists():
            # The same file, by which the next process knows that this one has ended.
            (self._left / lock.name).unlink()
            (self._left / lock.name).hardlink_to(lock)

    async def buried(self) -> None:
        """Wait until a killed process has ended, and restore the files that it left."""
        await self._ended.wait()
        path = self.settings.storage.path
        if path.exists():
            shutil.rmtree(path)
        if self._left.exists():
            self._left.rename(path)

    @property
    def _left(self) -> Path:
        path = self.settings.storage.path
        return path.with_name(path.name + ".killed")

    async def start(self) -> None:
        """Run the service, and wait until it is connected."""
        await self._group.start(self.run)
        await self.service.established.wait()
        await self.settled()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the service until it ends, or is killed, whatever happens before it is connected."""
        system.use(self.system)
        self.process = process = Process()
        process.enter()
        self._ended = anyio.Event()
        self._scope = anyio.CancelScope()
        make = None if self.model is None else self._make_model
        try:
            connect = partial(self.xmpp.connect, owner=self)
            self.service = Service(self.settings, connect=connect, make_model=make)
            for skill in self._skills:
                self.service.catalog.registry.add(skill)
            with self._scope:
                await self.service.run(task_status=task_status)
        except Exception:
            if process.is_alive:
                raise  # what one that was killed does is not to be seen
        finally:
            self._ended.set()

    def _make_model(self, choice: ModelChoice) -> Model:
        assert self.model is not None
        return self.model.named(choice.model)


def make_settings_of(
    directory: Path, settings: str | Mapping[str, Any], model: Script | None
) -> Settings:
    """Return the settings of a service; see `service`."""
    sections = tomllib.loads(settings) if isinstance(settings, str) else dict(settings)
    given = sections.get("server", {})
    server = {"component_domain": AGENT, "component_secret": _SECRET} | given
    storage = {"path": directory / "data"} | sections.get("storage", {})
    sections |= {"server": server, "storage": storage}
    if model is not None:
        sections.setdefault(
            "llm", {"provider": "vllm", "model": "scripted", "base_url": "http://m"}
        )
    return make_settings(**sections)


@asynccontextmanager
async def service(
    directory: Path,
    settings: str | Mapping[str, Any] = "",
    *,
    model: Script | None = None,
    skills: Sequence[Skill] = (),
    seed: int = 0,
    beside: Kit | None = None,
) -> AsyncIterator[Kit]:
    """Run a service for the duration of the context.

    Args:
        directory: where it has its files.
        settings: sections of `agent.toml`, as a text or as values; server and storage are set.
        model: the model of its agents.
        skills: besides those of the settings.
        seed: decides all random numbers, and the order in which tasks run.
        beside: another service, with which it shares servers and clocks.
    """
    made = make_settings_of(directory, settings, model)
    # As hypothesis does: tasks that are ready at the same time run in an order of the seed.
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    outside = system.current()
    simulated = SimulatedSystem(seed) if beside is None else beside.system
    async with anyio.create_task_group() as group:
        xmpp = Xmpp(group) if beside is None else beside.xmpp
        secret = made.server.component_secret.get_secret_value()
        xmpp.add_service(made.server.component_domain, secret)
        kit = Kit(made, group, xmpp, simulated, model, skills)
        await kit.start()
        system.use(simulated)  # what the test calls itself has the same clocks
        try:
            yield kit
        finally:
            system.use(outside)
        await kit.stop()
        group.cancel_scope.cancel()
