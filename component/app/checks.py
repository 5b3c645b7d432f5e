"""The checks of `xmpp-agent doctor`, one after another."""

from collections.abc import AsyncIterator, Sequence
from itertools import chain
from typing import TypeVar

import anyio
import msgspec

from component import system
from component.app.agent_checks import check_agents, check_traces
from component.app.features import load_skills, make_features
from component.app.outside_service import find_unknown_skills
from component.app.schema import SCHEMA
from component.audit.opening import check_writable
from component.config import Settings
from component.control.client import (
    OLDER_SETTINGS,
    ControlError,
    ControlRequest,
    ask,
    has_other_settings,
)
from component.features.memory_nodes.account_nodes import check_homes, server_software
from component.features.memory_nodes.privileges import Privileges
from component.features.service_commands.commands import ServiceStatus
from component.kernel.avatars import AvatarError
from component.kernel.check import Check
from component.kernel.options import addresses, make_policy, own_models, privileged_domains
from component.kernel.policy_advice import policy_advice
from component.kernel.profiles import contact_profiles
from component.link.connection.connection import Connection
from component.link.connection.failure import ConnectionFailed
from component.link.connection.live import Receiver
from component.link.connection.probe import Established, probe_once
from component.link.messages.outbox import Outbox
from component.link.router.faults import RouterErrors
from component.link.router.route_resolver import Senders
from component.link.router.router import Router, RouterOptions, StanzaEvent
from component.link.router.table import IQRoute, Request
from component.policy import PolicyError
from component.private import close_to_others, exposed
from component.sandbox.report import confinement_report
from component.skills import DuplicateSkillError, Registry, SkillLoadError
from component.store import DirectoryInUseError, OutdatedError, Storage, StorageError
from component.tasks.protocol import CannotShare
from component.uploads import Query, uploads_of
from xep.binding import Payload
from xep.disco import INFO, InfoQuery
from xep.jid import JID
from xep.stanza_error import StanzaError

P = TypeVar("P", bound=Payload)

_ANSWER_S = 10.0
_LOST = (
    "an ordinary IQ did not pass through the server and back, although the connection works."
    " ejabberd 23.10 to 24.12 drops such IQs when mod_privilege is enabled: disable it or upgrade."
)
_NOT_ASKED = (
    "not asked for a place for files while the service runs: `xmpp-agent status` warns of uploads"
    " that were refused; stop the service to ask for one"
)
_LOST_AMONG = (
    "not checked: an ordinary IQ did not come back to this process. If instances run, they have"
    " some of the {number} connections (component_number): stop them to check this. If none runs,"
    " ejabberd 23.10 to 24.12 drops such IQs when mod_privilege is enabled: disable it or upgrade."
)


async def check_all(settings: Settings, *, repair: bool = False) -> AsyncIterator[Check]:
    """Look at everything, in the order in which it is needed; each check as it is done.

    What rests on something that failed is not looked at. With `repair`, files that others may read
    are closed to them.
    """
    skills, registry = _skills(settings)
    async for check in _check_offers(settings, skills):
        yield check
    storage = await _storage(settings)
    yield storage
    if storage.verdict != "failed":
        for check in await system.in_thread(_data_directory, settings, storage, repair):
            yield check
    if (storage.verdict != "failed" or settings.memory.path is not None) and not settings.is_worker:
        async for check in check_agents(settings):
            yield check
        unknown = () if registry is None else await find_unknown_skills(settings, registry.names())
        if unknown:
            yield Check("skill names", "warning", "\n".join(unknown))
    if storage.verdict == "warning" and not settings.is_worker:
        yield Check("files", "ok", _NOT_ASKED)
    if storage.verdict == "warning" or settings.is_worker:
        return
    traces = await check_traces(settings)
    if traces is not None:
        yield traces
    if registry is not None:
        for feature in make_features(settings).values():
            for check in await feature.checks(registry):
                yield check
    async for check in _check_connection(settings):
        yield check


async def _check_connection(settings: Settings) -> AsyncIterator[Check]:
    connection, established = await _connection(settings)
    yield connection
    if established is not None:
        yield Check(
            "probe",
            "ok",
            f"an IQ to the agent's own address came back in {established.round_trip_s * 1000:.1f}"
            " ms",
        )
        for check in await _ordinary_iqs(settings):
            yield check


async def _check_offers(settings: Settings, skills: Check) -> AsyncIterator[Check]:
    """Look at what the service offers, and at the models, servers and APIs that it uses."""
    if settings.notice is not None:
        yield Check("settings", "warning", settings.notice)
    yield _policy(settings)
    try:
        contact_profiles(settings)
    except AvatarError as error:
        yield Check("avatar", "failed", str(error))
    yield skills
    async for check in _models(settings):
        yield check
    for feature in make_features(settings).values():
        async for check in feature.availability():
            yield check
    yield await check_sandbox()


def _policy(settings: Settings) -> Check:
    try:
        advice = list(policy_advice(settings, make_policy(settings).admits))
    except PolicyError as error:
        return Check("policy", "failed", str(error))
    domains = settings.allowed_domains
    jids = settings.agent.allowed_jids
    if jids == () or domains == ():
        return Check(
            "policy",
            "warning",
            "nobody may use the agent, because allowed_jids or allowed_domains is empty",
        )
    if advice:
        return Check("policy", "warning", "\n".join(advice))
    who = "everybody" if jids is None or jids == ("*",) else f"{len(jids)} accounts"
    where = "every domain" if domains == ("*",) else ", ".join(domains)
    return Check("policy", "ok", f"{who} of {where} may use the agent")


def _skills(settings: Settings) -> tuple[Check, Registry | None]:
    """Load the skills; None if they cannot be loaded."""
    try:
        registry = load_skills(settings)
    except (SkillLoadError, DuplicateSkillError) as error:
        return Check("skills", "failed", str(error)), None
    return Check("skills", "ok", f"{len(registry)} skills are offered"), registry


async def _models(settings: Settings) -> AsyncIterator[Check]:
    if settings.llm is None:
        yield Check("model", "ok", "no language model is configured: agents only answer commands")
        return
    # Imported only if there is a model.
    from component.models.availability import check_models  # noqa: PLC0415
    from component.models.offered_tools import read_refused, sentence  # noqa: PLC0415

    async for found in check_models(settings.llm, own_models(settings)):
        name = "model" if found.section == "llm" else f"model {found.section}"
        yield Check(name, found.verdict, found.text)
    for refused in await system.in_thread(read_refused, settings.storage.path):
        yield Check("tools", "warning", sentence(refused))


async def check_sandbox() -> Check:
    """Whether skills, servers and parsers that are not trusted can be confined to a process.

    It never fails: a service without such skills needs nothing of this.
    """
    report = await confinement_report()
    if report.problem:
        text = f"skills that are not trusted cannot run on this system: {report.problem}"
        return Check("confinement", "warning", text)
    missing = "; ".join(f"that they {one.text}" for one in report.missing)
    if not missing:
        text = f"confined processes are bounded in all {len(report.guarantees)} respects"
        return Check("confinement", "ok", text)
    text = (
        f"not guaranteed for confined processes on this system: {missing}"
        " (docs/explanation/sandbox.md)"
    )
    return Check("confinement", "warning", text)


async def _storage(settings: Settings) -> Check:
    try:
        postgres = settings.storage.postgres.get_secret_value()
        async with Storage.open(SCHEMA, settings.storage.path, postgres=postgres) as storage:
            if settings.audit.enabled:
                await system.in_thread(check_writable, storage.directory)
            where = " and the PostgreSQL database" if postgres else ""
            return Check("storage", "ok", f"{storage.directory}{where} can be written to")
    except DirectoryInUseError as error:
        # A second connection would take stanzas away from the service where a server allows two.
        text = f"{error} If that process is the service, stop it to check the connection."
        return Check("storage", "warning", text)
    except OutdatedError as error:
        return Check("storage", "warning", str(error))
    except StorageError as error:
        return Check("storage", "failed", str(error))


def _data_directory(settings: Settings, storage: Check, repair: bool) -> Sequence[Check]:
    """Look at the service that uses the data directory, if any, and at the modes of files."""
    service = _running_service(settings) if storage.verdict == "warning" else ()
    permissions = _permissions(settings, repair)
    return service if permissions is None else (*service, permissions)


def _running_service(settings: Settings) -> Sequence[Check]:
    """What the service that uses the data directory says about itself; nothing if none answers."""
    try:
        answer = ask(settings.storage.path, ControlRequest("status"))
    except ControlError as error:
        return [Check("service", "warning", str(error))]
    if answer is None or answer.error is not None:
        return []
    status = msgspec.json.decode(answer.value, type=ServiceStatus)
    warnings = [OLDER_SETTINGS] if has_other_settings(answer, settings) else []
    warnings += status.warnings
    if warnings:
        return [Check("service", "warning", "\n".join(warnings))]
    return [Check("service", "ok", f"{status.software} {status.version} is running")]


def _permissions(settings: Settings, repair: bool) -> Check | None:
    """What others than the owner can read; None if there is nothing."""
    found = list(dict.fromkeys(chain(*map(exposed, (settings.storage.path, settings.memory_path)))))
    if not found:
        return None
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    if not repair:
        text = (
            f"{found[0]}{more} can be read or written by other users of this machine; "
            "`xmpp-agent doctor --repair` removes these permissions"
        )
        return Check("permissions", "warning", text)
    try:
        for path in found:
            close_to_others(path)
    except OSError as error:
        text = f"the permissions of {error.filename} cannot be changed: {error.strerror}"
        return Check("permissions", "failed", text)
    return Check("permissions", "ok", f"{found[0]}{more} is no longer accessible to other users")


async def _connection(settings: Settings) -> tuple[Check, Established | None]:
    try:
        found = await probe_once(settings.server)
    except ConnectionFailed as error:
        if error.code == "conflict":
            text = (
                "the server accepts the domain and the secret, but another process is"
                " connected with them, perhaps the service itself"
            )
            return Check("connection", "warning", text), None
        if error.code == "silent" and settings.server.component_number > 1:
            text = (
                "the server accepts the domain and the secret, and sends nothing: the running"
                f" instances have all {settings.server.component_number} connections"
                " (component_number), so service discovery and memory homes are not checked. If"
                " none runs, compare it with that in ejabberd.yml"
            )
            return Check("connection", "warning", text), None
        return Check("connection", "failed", str(error)), None
    secured = f" over {found.tls}" if found.tls else ""
    text = f"{found.address}{secured} accepted {settings.server.address}"
    return Check("connection", "ok", text), found


async def _ordinary_iqs(settings: Settings) -> list[Check]:
    """Send a disco query through the server to ourselves, and its answer the same way back; then
    find out where memories can be.

    A server that balances sends it to any of several connections, so all of them are opened. If
    running instances have some, it may not arrive here.
    """
    outbox = Outbox(settings.limits.output_bytes)

    def answer(_request: Request[InfoQuery]) -> InfoQuery:
        return InfoQuery()

    privileges = Privileges(privileged_domains(settings))
    router = Router(
        RouterOptions(),
        Senders(lambda _principal: False, addresses(settings)),
        RouterErrors(),
        [IQRoute("get", InfoQuery, answer, (INFO,)), *privileges.routes()],
        outbox,
    )
    receiver = _Connected(router)
    connection = Connection(settings.server, outbox, receiver)
    connections = settings.server.component_number
    more = [_Further(router, connection) for _ in range(connections - 1)]
    lost = _LOST if connections == 1 else _LOST_AMONG.format(number=connections)
    missed = Check("service discovery", "failed" if connections == 1 else "warning", lost)
    found = [missed]

    async def software(domain: JID) -> str:
        info = await router.call("get", domain, InfoQuery(), InfoQuery, timeout_s=_ANSWER_S)
        return server_software(info)

    async def ask(peer: JID, query: Payload, expected: type[P]) -> P:
        return await router.call("get", peer, query, expected, timeout_s=_ANSWER_S)

    async def room(address: JID) -> InfoQuery:
        return await router.call("get", address, InfoQuery(), InfoQuery, timeout_s=_ANSWER_S)

    async with anyio.create_task_group() as tasks:
        await tasks.start(router.run)
        opened = [connection, *(connection.one_more(one) for one in more)]
        for one in opened:
            tasks.start_soon(one.run)
        with anyio.move_on_after(2 * _ANSWER_S):
            for waiting in (receiver, *more):
                await waiting.up.wait()
            ours = JID.parse(connection.address)
            try:
                await router.call("get", ours, InfoQuery(), InfoQuery, timeout_s=_ANSWER_S)
            except StanzaError as error:
                found = [msgspec.structs.replace(missed, text=f"{missed.text} ({error})")]
            else:
                text = "a disco query went through the server and its answer came back"
                found = [Check("service discovery", "ok", text)]
                # What the server grants comes before its answers.
                homes = await check_homes(settings, software, privileges)
                found += [] if homes is None else [homes]
                found.append(await _uploads(settings, ask))
                if any(rule.rooms for rule in settings.policy.rules):
                    from component.features.questions.checks import check_rooms  # noqa: PLC0415

                    found += await check_rooms(make_policy(settings), room)
                if settings.peer:
                    from component.features.peers.checks import check_peers  # noqa: PLC0415

                    found += await check_peers(settings.peer, ask)
        for one in opened:
            await one.close(2)
        tasks.cancel_scope.cancel()
    return found


async def _uploads(settings: Settings, ask: Query) -> Check:
    """Ask for a place for a file, as the service does when an agent sends one."""
    uploads = uploads_of(settings, ask)
    try:
        address, _ = await uploads.offered()
    except CannotShare as error:
        if settings.http.port is not None and settings.http.url:
            text = f"files are served at {settings.http.url}, because {error}"
            return Check("files", "ok", text)
        text = f"agents cannot send files: {error}. docs/how-to/send-files.md says what helps"
        return Check("files", "warning" if uploads.problems else "ok", text)
    return Check("files", "ok", f"{address} gives the agents places for files")


class _Connected(Receiver):
    """Waits for the stream to be up, and passes on what it brings."""

    def __init__(self, router: Router) -> None:
        self.up = anyio.Event()
        self._router = router

    def connected(self) -> None:
        self.up.set()

    def received(self, events: Sequence[StanzaEvent]) -> int:
        return self._router.received(events)

    def disconnected(self, reason: str) -> None:
        self._router.disconnected(reason)


class _Further(_Connected):
    """One more connection among which the server balances what it sends."""

    def __init__(self, router: Router, first: Connection) -> None:
        super().__init__(router)
        self._first = first

    def received(self, events: Sequence[StanzaEvent]) -> int:
        return super().received([one for one in events if not self._first.is_probe(one)])
