"""The functions of the service that a skill of a directory may use in its sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import structlog

from component.skill_directories.approvals import SkillMemory
from component.skill_directories.version import Artefact
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
    from component.http.gate import Access, Headers, HttpGate, HttpLimits

_log = structlog.get_logger("component.skills")

_HTTP: Final = ("http", "https")
_LONGEST_LINE: Final = 1_000


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that the service adds to requests of skills.

    Attributes:
        hosts: the hosts that it is sent to.
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


SendMessageOf: TypeAlias = Callable[[Context, SendMessage, str], Awaitable[None]]
"""Sends a message of a skill, on behalf of the person who calls it. Raises SkillError and
InvalidParam."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What the service has for skills.

    Attributes:
        credentials: those of the settings, by name.
        storage: keeps what skills remember; None if nothing can be kept.
        gates: makes the gates of requests; None makes those that connect.
        messages: returns what sends messages; None where there is no connection.
        compiled: the directory of compiled WebAssembly; None compiles it in every process.
    """

    credentials: Mapping[str, Credential] = {}
    storage: Storage | None = None
    gates: Gates | None = None
    messages: Callable[[], SendMessageOf | None] = lambda: None
    compiled: Path | None = None


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
    """Return what makes, for each call, the functions that a skill's manifest declares."""
    return functions_for(artefact.name, artefact.manifest.skill.capabilities, services)


def functions_for(name: str, capabilities: Capabilities, services: Services) -> Functions:
    """Return what makes the functions for each call of a skill with these capabilities."""
    return lambda context: _Functions(name, capabilities, services, context).made()


class _Functions:
    def __init__(
        self, skill: str, capabilities: Capabilities, services: Services, context: Context
    ) -> None:
        self._skill = skill
        self._capabilities = capabilities
        self._services = services
        self._context = context
        self._credentials: Credentials | None = None
        self._gate: HttpGate | None = None
        self._sent = 0

    def made(self) -> HostFunctions:
        """Return the functions that the skill declares, those that all have, and the log."""
        said, context = self._capabilities, self._context
        handlers: dict[type[HostFunction[Any]], Callable[[Any], Awaitable[Any]]] = {}
        if said.llm is not None:
            handlers[AskModel] = self._ask_model
        of_test = context.functions
        if of_test is not None:
            handlers = {**of_test.handlers, **handlers}
            return msgspec.structs.replace(of_test, skill=self._skill, handlers=handlers)
        handlers[ReportProgress] = self._report
        if said.credential:
            self._credentials = Credentials(self._skill, said, self._services)
            handlers[HasCredential] = self._credentials.available
        if said.network:
            handlers[HttpRequest] = self._request
        if said.memory_read or said.memory_write:
            storage = self._services.storage
            handlers |= SkillMemory(storage, self._skill, context.owner, said).handlers
        if said.xmpp:
            handlers[SendMessage] = self._send
        return HostFunctions(self._skill, partial(_write_log, self._skill), handlers)

    async def _report(self, progress: ReportProgress) -> None:
        await self._context.progress(progress.fraction, progress.text)

    async def _request(self, request: HttpRequest) -> HttpResponse:
        if self._gate is None:  # each call has a gate of its own
            self._gate = gate_of(self._capabilities, self._services)
        return await send_request(self._skill, self._gate, self._credentials, request)

    async def _ask_model(self, asked: AskModel) -> str:
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

    async def _send(self, message: SendMessage) -> None:
        context = self._context
        self._sent += 1
        if message.to not in self._capabilities.xmpp:
            raise CapabilityMissing(context.skill, f"xmpp:{printable(message.to, 100)}")
        send = self._services.messages()
        if send is None:
            raise HostError("Messages cannot be sent here: no service is connected.")
        try:
            key = message.key or f"{context.key} {self._sent}"
            await send(context, SendMessage(message.to, message.text, key), context.skill)
        except (SkillError, InvalidParam) as error:
            raise HostError(str(error)) from error


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


async def send_request(
    skill: str, gate: HttpGate, credentials: Credentials | None, request: HttpRequest
) -> HttpResponse:
    """Make a request of a skill through a gate. Raises HostError and CapabilityMissing.

    A credential goes only to the server of the request, not to one that it redirects to. If the
    response repeats it, as servers for tests do, it is replaced there.
    """
    # Imported only where a skill connects, as the gate.
    from component.http import gate as http_gate  # noqa: PLC0415
    from component.rest.requests import redacted  # noqa: PLC0415

    secret: Headers = ()
    if request.credential:
        if credentials is None:
            raise CapabilityMissing(skill, f"credential:{request.credential}")
        secret = credentials.headers(request.credential, request.url)
    try:
        found = await gate.send(
            http_gate.HttpRequest(
                url=request.url,
                method=request.method,
                headers=request.headers,
                body=request.body,
                secret_headers=secret,
            )
        )
    except http_gate.HttpRefused as error:
        raise CapabilityMissing(skill, error.capability) from error
    except http_gate.HttpError as error:
        raise HostError(str(error)) from error
    clean = redacted(found, secret)
    return HttpResponse(clean.status, clean.headers, clean.body)


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
