"""The functions of the service that a skill of a directory may use in its sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

import msgspec
import structlog

from component.sandbox.host import HostError, HostFunctions, HttpRequest, HttpResponse, LogLevel
from component.skills.capabilities import Capabilities, Endpoint
from component.skills.context import Context
from component.skills.errors import CapabilityMissing, SkillLoadError, UsageError, printable
from component.skills.model_answers import ModelFailed
from component.sources.directories.memories import SkillMemory
from component.sources.directories.runners import Artefact
from component.storage.database import Transactions

if TYPE_CHECKING:
    from component.sandbox.http_gate import Access, Headers, HttpGate, HttpLimits

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


class Gates(Protocol):
    """Makes gates; tests of skills have one whose servers are in the tests."""

    def __call__(self, access: Sequence[Access], limits: HttpLimits | None) -> HttpGate:
        """Return a gate that permits these servers."""
        ...


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What the service has for skills.

    Attributes:
        credentials: those of the settings, by name.
        storage: keeps what skills remember; None if nothing can be kept.
        gates: makes the gates of requests; None makes those that connect.
    """

    credentials: Mapping[str, Credential] = {}
    storage: Transactions | None = None
    gates: Gates | None = None


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
    capabilities = artefact.manifest.skill.capabilities
    name = artefact.name
    known, storage = services.credentials, services.storage
    usable = {str(key): known[key] for key in capabilities.credential if key in known}
    remembers = bool(capabilities.memory_read or capabilities.memory_write)

    def make(context: Context) -> HostFunctions:
        return HostFunctions(
            log=_Log(name),
            progress=context.progress,
            http=_Http(artefact, services) if capabilities.network else None,
            credentials=_Available(name, capabilities, usable) if capabilities.credential else None,
            memory=SkillMemory(storage, name, context.principal, capabilities)
            if remembers and storage is not None
            else None,
            llm=None if capabilities.llm is None else _Llm(context),
        )

    return make


class _Log:
    def __init__(self, skill: str) -> None:
        self._skill = skill

    def __call__(self, level: LogLevel, text: str) -> None:
        getattr(_log, level)("a skill logs", skill=self._skill, text=printable(text, _LONGEST_LINE))


def gate_of(
    capabilities: Capabilities, services: Services, limits: HttpLimits | None = None
) -> HttpGate:
    """Return the gate through which a skill connects: to what its manifest declares."""
    # Imported only where a skill connects.
    from component.sandbox.http_gate import HttpGate  # noqa: PLC0415

    access = [_access(each) for each in capabilities.network]
    return (services.gates or HttpGate)(access, limits)


def secret_headers(artefact: Artefact, services: Services, credential: str, url: str) -> Headers:
    """Return the header of a credential, for a request to a URL; nothing without a credential.

    Raises CapabilityMissing for one that the manifest does not declare, and HostError for one that
    is not set, or is for other servers.
    """
    if not credential:
        return ()
    if credential not in artefact.manifest.skill.capabilities.credential:
        raise CapabilityMissing(artefact.name, f"credential:{credential}")
    found = services.credentials.get(credential)
    if found is None:
        raise HostError(f"The credential {credential} is not set: an admin adds it.")
    from component.sandbox.http_targets import target_of  # noqa: PLC0415

    try:
        host = target_of(url).host
    except ValueError as error:
        raise HostError(str(error)) from None
    if host not in found.hosts:
        raise HostError(f"The credential {credential} is not for {host}.")
    return ((found.header, f"{found.prefix}{found.value}"),)


class _Http:
    def __init__(self, artefact: Artefact, services: Services) -> None:
        self._artefact = artefact
        self._services = services
        self._gate = gate_of(artefact.manifest.skill.capabilities, services)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        from component.sandbox.http_functions import redacted  # noqa: PLC0415
        from component.sandbox.http_gate import HttpError, HttpRefused  # noqa: PLC0415
        from component.sandbox.http_gate import HttpRequest as GateRequest  # noqa: PLC0415

        secret = secret_headers(self._artefact, self._services, request.credential, request.url)
        wanted = GateRequest(request.url, request.method, request.headers, request.body, secret)
        try:
            response = redacted(await self._gate.send(wanted), secret)
        except HttpRefused as error:
            raise CapabilityMissing(self._artefact.name, error.capability) from error
        except HttpError as error:
            raise HostError(str(error)) from error
        return HttpResponse(response.status, response.headers, response.body)


def _access(endpoint: Endpoint) -> Access:
    from component.sandbox.http_gate import Access  # noqa: PLC0415

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


class _Available:
    def __init__(
        self, skill: str, capabilities: Capabilities, credentials: Mapping[str, Credential]
    ) -> None:
        self._skill = skill
        self._declared = capabilities.credential
        self._credentials = credentials

    async def available(self, name: str) -> bool:
        if name not in self._declared:
            raise CapabilityMissing(self._skill, f"credential:{printable(name, 64)}")
        return name in self._credentials


class _Llm:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, prompt: str, schema: str, max_tokens: int) -> str:
        try:
            wanted = msgspec.json.decode(schema, type=dict[str, object])
            answer = await self._context.llm(prompt, wanted, max_tokens=max_tokens)
        except (ValueError, RecursionError) as error:
            raise HostError(f"The schema is not JSON: {error}") from None
        except (ModelFailed, UsageError) as error:
            raise HostError(str(error)) from error
        return msgspec.json.encode(cast("object", answer)).decode()
