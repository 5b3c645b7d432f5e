"""The composition root: the only place where rooms are wired together."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Protocol

import anyio
import structlog
from anyio.abc import TaskStatus

from component.commands.definition import AnyCommand, Asking, Commands
from component.commands.everybody import everybody
from component.connection.connection import ComponentConnection
from component.connection.options import TLS, ConnectionOptions
from component.connection.outbox import Outbox
from component.handlers.about import About
from component.handlers.disco import Discovery, Facts
from component.handlers.execute import ExecuteHandler
from component.handlers.message import MessageHandler
from component.handlers.presence import PresenceHandler
from component.handlers.skills import SkillsHandler
from component.policy import Policy, Rule
from component.router.admission import Shares
from component.router.router import Router, RouterOptions
from component.router.table import Host, Route
from component.settings import Settings
from component.skills import Registry, View, load_module, skills_of
from component.skills.builtin import builtin_skills
from component.skills.threads import Threads
from component.storage import Storage, StorageError
from component.storage.stopped import StoppedContacts
from component.storage.subscriptions import SubscriptionStore
from xep.jid import JID
from xep.stanza import Message, Presence

_log = structlog.get_logger("component.service")

SOFTWARE = "xmpp-agent-component"
HOME = "https://github.com/xmpp-agent/xmpp-agent-component"
DEFAULT_AGENT = "assistant"
"""The localpart of the agent that every component hosts."""
_GRACE_S = 5.0
"""Seconds beyond the skills' own limit after which the router gives a handler up."""


def load_skills(settings: Settings) -> Registry:
    """Every skill that the settings offer.

    Raises:
        SkillLoadError: a module cannot be loaded, or declares no skill.
        DuplicateSkillError: two skills have one name.
    """
    registry = Registry(builtin_skills())
    for module in settings.skills.modules:
        for skill in skills_of(load_module(module)):
            registry.add(skill)
    if settings.conformance.enabled:
        # Nobody pays for the fixtures who does not offer them.
        from component.skills.conformance_fixtures import conformance_skills  # noqa: PLC0415

        for skill in conformance_skills():
            registry.add(skill)
    return registry


def make_policy(settings: Settings) -> Policy:
    """The policy that the settings describe.

    Raises:
        PolicyError: an entry that cannot be kept to; all of them are named.
    """
    return Policy(
        allowed_domains=settings.allowed_domains,
        allowed_jids=settings.agent.allowed_jids,
        rules=[
            Rule(
                rule.skills,
                rule.allowed_jids,
                rule.allowed_domains,
                rule.confirm,
                rule.approvers,
            )
            for rule in settings.policy.rules
        ],
        confirm=settings.policy.confirm,
    )


def connection_options(settings: Settings) -> ConnectionOptions:
    """What the connection is told by the settings."""
    server = settings.server
    tls = None
    if server.tls:
        tls = TLS(
            ca_file=None if server.tls_ca is None else str(server.tls_ca),
            server_name=server.tls_server_name,
            verify=server.tls_verify,
        )
    return ConnectionOptions(
        host=server.host,
        port=server.port,
        domain=server.component_domain,
        secret=server.component_secret.get_secret_value(),
        tls=tls,
        connect_timeout_s=server.connect_timeout_s,
        handshake_timeout_s=server.connect_timeout_s,
        reconnect_min_s=server.reconnect_min_s,
        reconnect_max_s=server.reconnect_max_s,
        keepalive_s=server.keepalive_s,
        read_timeout_s=server.read_timeout_s,
        probe_timeout_s=server.probe_timeout_s,
        max_stanza_bytes=server.max_stanza_bytes,
        max_depth=server.max_depth,
        max_elements=server.max_elements,
    )


class Service:
    """The agent service: everything that one component does.

    Args:
        settings: the settings; read once, here.

    Attributes:
        established: set when the first handshake has been accepted.

    Raises:
        PolicyError, SkillLoadError, DuplicateSkillError: the settings cannot be kept to.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.policy = make_policy(settings)
        self.registry = load_skills(settings)
        self.established = anyio.Event()
        self._stopping = anyio.Event()

    def view(self, principal: JID) -> View:
        """The skills that a principal sees and may execute."""
        key = self.policy.view_key(principal)
        return self.registry.view(key, lambda skill: self.policy.may_use(key, skill.name))

    @property
    def stopping(self) -> bool:
        """Whether it has been asked to end."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the service to end: work under way is answered first. Safe to call again."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop` is called.

        Raises:
            StorageError: the data directory cannot be used.
        """
        if self.settings.notice:
            _log.warning(self.settings.notice)
        where = self.settings.storage
        async with Storage.open(where.path, postgres=where.postgres.get_secret_value()) as storage:
            contacts = StoppedContacts(storage, self._agent_at)
            await contacts.load()
            await self._serve(SubscriptionStore(storage), contacts, task_status)

    async def _serve(
        self,
        subscriptions: SubscriptionStore,
        contacts: StoppedContacts,
        started: TaskStatus[None],
    ) -> None:
        outbox = Outbox(self.settings.limits.output_bytes)

        def send(stanza: Message | Presence) -> None:
            outbox.put(stanza.encode())

        def features(host: Host) -> tuple[str, ...]:
            return router.table.features(host)

        discovery = Discovery(self._facts(), self._agents(), features, self.view)
        presence = PresenceHandler(subscriptions, send, discovery.caps, contacts)
        name = self.settings.agent.name

        def offered(asking: Asking) -> tuple[AnyCommand, ...]:
            return commands.of(asking)

        commands = Commands(everybody(name, offered, self.view, contacts))
        limits = self.settings.limits
        handlers: tuple[Handler, ...] = (
            About(SOFTWARE, version(SOFTWARE)),
            discovery,
            SkillsHandler(self.view),
            ExecuteHandler(
                self.view,
                Threads(limits.threads_total, limits.threads_per_principal),
                limits.inline_s,
            ),
            MessageHandler(name, send, commands),
            presence,
        )

        def flush() -> None:
            connection.flush()

        router = Router(
            self._router_options(),
            [route for handler in handlers for route in handler.routes()],
            self.policy.admits,
            outbox,
            flush,
        )
        async with anyio.create_task_group() as tasks:

            def connected() -> None:
                self.established.set()
                tasks.start_soon(_guarded, presence.announce, "announce ourselves to subscribers")

            connection = ComponentConnection(
                connection_options(self.settings), outbox, _Receiver(router, connected)
            )
            await tasks.start(router.run)
            tasks.start_soon(connection.run)
            started.started()
            await self._stopping.wait()
            await self._drain(router, presence, connection)
            tasks.cancel_scope.cancel()

    async def _drain(
        self, router: Router, presence: PresenceHandler, connection: ComponentConnection
    ) -> None:
        """Answer what is under way, say good-bye, close the stream; all within a limit."""
        limit = self.settings.server.drain_s
        deadline = anyio.current_time() + limit
        _log.info("stopping")
        left = await router.drain(limit)
        if left:
            _log.warning("gave up requests that would not end in time", requests=left)
        if self.established.is_set():
            await _guarded(presence.take_leave, "tell subscribers that we go")
        await connection.close(max(1.0, deadline - anyio.current_time()))

    def _agent_at(self, address: JID) -> JID:
        """The agent that speaks at an address: at the domain it is the default one."""
        return address if address.local else JID.parse(f"{DEFAULT_AGENT}@{address.domain}")

    def _agents(self) -> Mapping[str, str]:
        return {DEFAULT_AGENT: self.settings.agent.name}

    def _facts(self) -> Facts:
        limits = self.settings.limits
        return Facts(
            domain=JID.parse(self.settings.server.component_domain),
            name=self.settings.agent.name,
            node=HOME,
            form={
                "software": SOFTWARE,
                "software_version": version(SOFTWARE),
                "protocol_version": "0",
                "max_stanza_bytes": str(self.settings.server.max_stanza_bytes),
                "inline_seconds": f"{limits.inline_s:g}",
                "requests_per_principal": str(limits.requests_per_principal),
            },
        )

    def _router_options(self) -> RouterOptions:
        limits = self.settings.limits
        return RouterOptions(
            domain=self.settings.server.component_domain,
            agents=frozenset(self._agents()),
            shares=Shares(limits.requests_per_principal, limits.requests_total),
            request_timeout_s=limits.inline_s + _GRACE_S,
            retry_after_s=limits.retry_after_s,
            call_timeout_s=limits.iq_timeout_s,
            max_stanza_bytes=self.settings.server.max_stanza_bytes,
        )


class _Receiver:
    """Takes what the connection reports to the router."""

    def __init__(self, router: Router, connected: Callable[[], None]) -> None:
        self.received = router.received
        self.disconnected = router.disconnected
        self.connected = connected


async def _guarded(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Do what the stream can live without; a disk that refuses must not end the service."""
    try:
        await work()
    except StorageError as error:
        _log.error(f"could not {what}", reason=str(error))


class Handler(Protocol):
    """One protocol face: what it serves."""

    def routes(self) -> Sequence[Route]:
        """The routes of this handler."""
