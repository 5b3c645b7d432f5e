"""What `xmpp-agent doctor` looks at: each thing that can be wrong, one after the other."""

from collections.abc import AsyncIterator, Sequence
from itertools import chain

import anyio
from anyio import to_thread

from component.audit.opening import check_writable
from component.checks_of_agents import Check, check_agents, check_watching
from component.connection.connection import ComponentConnection
from component.connection.failure import ConnectionFailed
from component.connection.outbox import Outbox
from component.connection.probe import Established, probe_once
from component.policy import PolicyError
from component.private import close_to_others, exposed
from component.router.router import Event, Router, RouterOptions
from component.router.table import IQRoute, Request
from component.service import connection_options, load_skills, make_policy
from component.settings import Settings
from component.skills import DuplicateSkillError, SkillLoadError
from component.storage import DirectoryInUseError, Storage, StorageError
from xep.disco import INFO, InfoQuery
from xep.jid import JID
from xep.stanza_error import StanzaError

_ANSWER_S = 10.0


async def check_all(settings: Settings, *, repair: bool = False) -> AsyncIterator[Check]:
    """Look at everything, in the order in which it is needed; each check as it is done.

    What rests on something that failed is not looked at. With `repair`, files that others may read
    are closed to them.
    """
    for check in (_notice(settings), _policy(settings), _skills(settings)):
        if check is not None:
            yield check
    async for check in _models(settings):
        yield check
    storage = await _storage(settings)
    yield storage
    if storage.verdict != "failed":
        permissions = await to_thread.run_sync(_permissions, settings, repair)
        if permissions is not None:
            yield permissions
    if storage.verdict != "failed" or settings.memory.path is not None:
        async for check in check_agents(settings):
            yield check
    if storage.verdict == "warning":
        return
    async for check in check_watching(settings):
        yield check
    connection, established = await _connection(settings)
    yield connection
    if established is not None:
        yield Check(
            "probe",
            "ok",
            f"an IQ to our own domain came back in {established.round_trip_s * 1000:.1f} ms",
        )
        yield await _ordinary_iq(settings)


def _notice(settings: Settings) -> Check | None:
    return None if settings.notice is None else Check("settings", "warning", settings.notice)


def _policy(settings: Settings) -> Check:
    try:
        policy = make_policy(settings)
    except PolicyError as error:
        return Check("policy", "failed", str(error))
    domains = settings.allowed_domains
    jids = settings.agent.allowed_jids
    if jids == () or domains == ():
        return Check("policy", "warning", "nobody may use the agent: an allow-list is empty")
    if jids is not None and jids != ("*",):
        shut_out = [jid for jid in jids if not policy.admits(JID.parse(jid))]
        if shut_out:
            text = (
                f"{', '.join(shut_out)} can never come in: a sender must pass both lists, and "
                "agent.allowed_domains does not hold that domain"
            )
            return Check("policy", "warning", text)
    who = "everybody" if jids is None or jids == ("*",) else f"{len(jids)} accounts"
    where = "every domain" if domains == ("*",) else ", ".join(domains)
    return Check("policy", "ok", f"{who} of {where} may use the agent")


def _skills(settings: Settings) -> Check:
    try:
        registry = load_skills(settings)
    except (SkillLoadError, DuplicateSkillError) as error:
        return Check("skills", "failed", str(error))
    return Check("skills", "ok", f"{len(registry)} skills are offered")


async def _models(settings: Settings) -> AsyncIterator[Check]:
    if settings.llm is None:
        yield Check("model", "ok", "there is none: agents answer commands, not words")
        return
    # Who has none need not load what asks them.
    from component.models.looking import look  # noqa: PLC0415
    from component.service.options import own_models  # noqa: PLC0415

    async for found in look(settings.llm, own_models(settings)):
        name = "model" if found.section == "llm" else f"model {found.section}"
        yield Check(name, found.verdict, found.text)


async def _storage(settings: Settings) -> Check:
    try:
        postgres = settings.storage.postgres.get_secret_value()
        async with Storage.open(settings.storage.path, postgres=postgres) as storage:
            if settings.audit.enabled:
                await to_thread.run_sync(check_writable, storage.directory)
            where = " and the PostgreSQL database" if postgres else ""
            return Check("storage", "ok", f"{storage.directory}{where} can be written to")
    except DirectoryInUseError as error:
        # A second connection would take stanzas away from the service where a server allows two.
        text = f"{error} If that is the service: its connection is not tried while it runs."
        return Check("storage", "warning", text)
    except StorageError as error:
        return Check("storage", "failed", str(error))


def _permissions(settings: Settings, repair: bool) -> Check | None:
    """What others than the owner can read; None if there is nothing."""
    found = list(dict.fromkeys(chain(*map(exposed, (settings.storage.path, settings.memory_path)))))
    if not found:
        return None
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    if not repair:
        text = (
            f"{found[0]}{more} can be read or written by other users of this machine; "
            "`xmpp-agent doctor --repair` takes these permissions away"
        )
        return Check("permissions", "warning", text)
    try:
        for path in found:
            close_to_others(path)
    except OSError as error:
        text = f"the permissions of {error.filename} cannot be changed: {error.strerror}"
        return Check("permissions", "failed", text)
    return Check("permissions", "ok", f"{found[0]}{more} can no longer be read by other users")


async def _connection(settings: Settings) -> tuple[Check, Established | None]:
    try:
        found = await probe_once(connection_options(settings))
    except ConnectionFailed as error:
        if error.code == "conflict":
            text = (
                "the server knows the domain and the secret, and another process is connected with "
                "them: the service itself, if it runs"
            )
            return Check("connection", "warning", text), None
        return Check("connection", "failed", str(error)), None
    secured = f" over {found.tls}" if found.tls else ""
    text = f"{found.address}{secured} accepted the handshake of {settings.server.component_domain}"
    return Check("connection", "ok", text), found


async def _ordinary_iq(settings: Settings) -> Check:
    """Send a disco query through the server to ourselves, and its answer the same way back."""
    options = connection_options(settings)
    domain = JID.parse(options.domain)
    outbox = Outbox(settings.limits.output_bytes)

    def answer(_request: Request[InfoQuery]) -> InfoQuery:
        return InfoQuery()

    receiver = _Connected()
    connection = ComponentConnection(options, outbox, receiver)
    router = Router(
        RouterOptions(domain=options.domain),
        [IQRoute("get", InfoQuery, answer, (INFO,))],
        lambda _principal: False,
        outbox,
        connection.flush,
    )
    receiver.router = router
    verdict = Check(
        "service discovery",
        "failed",
        "an ordinary IQ did not pass through the server and back, though a connection is there. "
        "ejabberd 23.10 to 24.12 drops them when mod_privilege is on: turn it off or upgrade.",
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(router.run)
        tasks.start_soon(connection.run)
        with anyio.move_on_after(_ANSWER_S):
            await receiver.up.wait()
            try:
                await router.call("get", domain, InfoQuery(), InfoQuery, timeout_s=_ANSWER_S)
                text = "a disco query went through the server and its answer came back"
                verdict = Check("service discovery", "ok", text)
            except StanzaError as error:
                verdict = Check("service discovery", "failed", f"{verdict.text} ({error})")
        await connection.close(2)
        tasks.cancel_scope.cancel()
    return verdict


class _Connected:
    """Waits for the stream to be up, and passes on what it brings."""

    def __init__(self) -> None:
        self.up = anyio.Event()
        self.router: Router | None = None

    def connected(self) -> None:
        self.up.set()

    def received(self, events: Sequence[Event]) -> None:
        assert self.router is not None
        self.router.received(events)

    def disconnected(self, reason: str) -> None:
        assert self.router is not None
        self.router.disconnected(reason)
