"""The functions of the service that a skill of a directory may use in its sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import msgspec
import structlog

from component.skill_directories.memories import SkillMemory
from component.skill_directories.runners import Artefact
from component.skills.capabilities import Capabilities, Endpoint
from component.skills.context import Context
from component.skills.errors import (
    CapabilityMissing,
    InvalidParam,
    SkillError,
    SkillLoadError,
    UsageError,
    printable,
)
from component.skills.host import (
    Handlers,
    HasCredential,
    HostError,
    HostFunction,
    HostFunctions,
    HttpRequest,
    HttpResponse,
    LogLevel,
    SendMessage,
)
from component.skills.operations import AskModel, ReportProgress
from component.store.storage import Storage
from xep.binding.json_bounds import decoded_json

if TYPE_CHECKING:
    from component.http.gate import Access, HttpGate, HttpLimits

_log = structlog.get_logger("component.skills")

_HTTP: Final = ("http", "https")
_LONGEST_LINE: Final = 1_000


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that the service adds to requests of skills.

    Attributes:
        value: the secret.
        hosts: the hosts that it is sent to.
        header: the header that it is sent in.
        prefix: what stands before it there.
    """

    value: str
    hosts: tuple[str, ...]
    header: str = "Authorization"
    prefix: str = "Bearer "

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"Credential(hosts={self.hosts!r}, header={self.header!r})"


Gates: TypeAlias = "Callable[[Sequence[Access], HttpLimits | None], HttpGate]"
"""Makes gates that permit servers; tests of skills have one whose servers are in the tests."""


class SkillMessages(Protocol):
    """Sends messages of skills: `component.kernel.guarded_messages.GuardedMessages`."""

    async def send(
        self, agent: str, principal: str, to: str, text: str, *, key: str, skill: str = ""
    ) -> None:
        """Send a message of a skill, on behalf of a person. Raises SkillError."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What the service has for skills.

    Attributes:
        credentials: those of the settings, by name.
        storage: keeps what skills remember; None if nothing can be kept.
        gates: makes the gates of requests; None makes those that connect.
        messages: returns what sends messages; None where there is no connection.
    """

    credentials: Mapping[str, Credential] = {}
    storage: Storage | None = None
    gates: Gates | None = None
    messages: Callable[[], SkillMessages | None] = lambda: None


Functions: TypeAlias = Callable[[Context], HostFunctions]


def check_grantable(artefact: Artefact) -> None:
    """Raise SkillLoadError for a capability that no sandbox can limit to what the manifest says."""
    for endpoint in artefact.manifest.skill.capabilities.network:
        if endpoint.scheme not in _HTTP:
            raise SkillLoadError(
                f"{endpoint}: a confined skill can connect by http and https only, through the"
                " service. Remove it, or approve a Python skill as trusted."
            )


def functions_of(artefact: Artefact, services: Services) -> Functions:
    """Return what makes the functions for each call of a skill: those that its manifest declares,
    and progress and log.
    """
    return functions_for(artefact.name, artefact.manifest.skill.capabilities, services)


def functions_for(name: str, capabilities: Capabilities, services: Services) -> Functions:
    """Return what makes the functions for each call of a skill with these capabilities."""

    def make(context: Context) -> HostFunctions:
        asks_model: Handlers = {} if capabilities.llm is None else {AskModel: _Llm(context)}
        of_test = context.functions
        if of_test is not None:
            handlers = {**of_test.handlers, **asks_model}
            return msgspec.structs.replace(of_test, skill=name, handlers=handlers)

        async def report(progress: ReportProgress) -> None:
            await context.progress(progress.fraction, progress.text)

        made: dict[type[HostFunction[Any]], Callable[[Any], Awaitable[Any]]]
        made = {ReportProgress: report, **asks_model}
        credentials = None
        if capabilities.credential:
            credentials = Credentials(name, capabilities, services)
            made[HasCredential] = credentials.available
        if capabilities.network:
            made[HttpRequest] = _Http(name, capabilities, credentials, services)
        if capabilities.memory_read or capabilities.memory_write:
            memory = SkillMemory(services.storage, name, context.principal, capabilities)
            made |= memory.handlers
        if capabilities.xmpp:
            made[SendMessage] = _Xmpp(context, capabilities, services)
        return HostFunctions(name, partial(_write_log, name), made)

    return make


def _write_log(skill: str, level: LogLevel, text: str) -> None:
    getattr(_log, level)("a skill logs", skill=skill, text=printable(text, _LONGEST_LINE))


def gate_of(
    capabilities: Capabilities, services: Services, limits: HttpLimits | None = None
) -> HttpGate:
    """Return the gate through which a skill connects: to what its manifest declares."""
    # Imported only where a skill connects.
    from component.http.gate import HttpGate  # noqa: PLC0415

    access = [_access(each) for each in capabilities.network]
    return (services.gates or HttpGate)(access, limits)


class _Http:
    """Makes requests through a gate of its own, which is made for the first one."""

    def __init__(
        self,
        skill: str,
        capabilities: Capabilities,
        credentials: Credentials | None,
        services: Services,
    ) -> None:
        self._skill = skill
        self._capabilities = capabilities
        self._credentials = credentials
        self._services = services
        self._gate: HttpGate | None = None

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        from component.skill_directories.http_functions import send_request  # noqa: PLC0415 - as the gate

        if self._gate is None:
            self._gate = gate_of(self._capabilities, self._services)
        return await send_request(self._skill, self._gate, self._credentials, request)


def _access(endpoint: Endpoint) -> Access:
    from component.http.gate import Access  # noqa: PLC0415

    # An admin has approved this server by its name, wherever it is.
    return Access(endpoint.host, endpoint.scheme, endpoint.port, private=_is_private(endpoint.host))


def _is_private(host: str) -> bool:
    """Whether the manifest names an address itself, which the admin has seen. Names never lead to
    private addresses: their owners could let them point anywhere.
    """
    import ipaddress  # noqa: PLC0415

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


class Credentials:
    """The credentials that one skill declares, of those that are set."""

    def __init__(self, skill: str, capabilities: Capabilities, services: Services) -> None:
        self._skill = skill
        self._declared = capabilities.credential
        self._credentials = services.credentials

    async def available(self, wanted: HasCredential) -> bool:
        """Return whether a credential is set. Raises CapabilityMissing."""
        self._check(wanted.name)
        return wanted.name in self._credentials

    def headers(self, name: str, url: str) -> tuple[tuple[str, str], ...]:
        """Return what a credential adds to a request. Raises CapabilityMissing, HostError."""
        self._check(name)
        credential = self._credentials.get(name)
        if credential is None:
            raise HostError(f"The credential {name} is not set: an admin adds it.")
        from component.http.targets import target_of  # noqa: PLC0415 - as the gate

        try:
            host = target_of(url).host
        except ValueError as error:
            raise HostError(str(error)) from None
        if host not in credential.hosts:
            raise HostError(f"The credential {name} is not for {host}.")
        return ((credential.header, f"{credential.prefix}{credential.value}"),)

    def _check(self, name: str) -> None:
        if name not in self._declared:
            raise CapabilityMissing(self._skill, f"credential:{printable(name, 64)}")


class _Llm:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, asked: AskModel) -> str:
        try:
            wanted = msgspec.convert(decoded_json(asked.schema), dict[str, object])
        except ValueError as error:
            raise HostError(f"The schema is not JSON: {error}") from None
        try:
            answer = await self._context.llm(
                asked.prompt, wanted, max_tokens=asked.max_tokens, key=asked.key
            )
        except UsageError as error:
            raise HostError(str(error)) from error
        return msgspec.json.encode(cast("object", answer)).decode()


class _Xmpp:
    def __init__(self, context: Context, capabilities: Capabilities, services: Services) -> None:
        self._context = context
        self._recipients = capabilities.xmpp
        self._services = services
        self._sent = 0

    async def __call__(self, message: SendMessage) -> None:
        context, to = self._context, message.to
        self._sent += 1
        if to not in self._recipients:
            raise CapabilityMissing(context.skill, f"xmpp:{printable(to, 100)}")
        messages = self._services.messages()
        if messages is None:
            raise HostError("Messages cannot be sent here: no service is connected.")
        try:
            await messages.send(
                *(context.agent, context.principal, to, message.text),
                key=message.key or f"{context.key} {self._sent}",
                skill=context.skill,
            )
        except (SkillError, InvalidParam) as error:
            raise HostError(str(error)) from error
