"""The sections about MCP servers, whose tools are skills."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from component.config.kinds import (
    Count,
    FilePath,
    Headers,
    Seconds,
    Section,
    http_address,
    located_file,
    refusal,
)
from component.config.model import Settings
from component.config.sections import Top, named_tables
from component.config.skills import Effects, SourceTaint

_NAME: Final = r"[A-Za-z][A-Za-z0-9_-]{0,31}"
_PREFIX: Final = r"([A-Za-z][A-Za-z0-9_-]{0,31})?"
_OF_PROGRAMS: Final = ("env", "readable", "writable", "network", "processes")
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"


def _address(example: str) -> Callable[[str], str]:
    return lambda value: http_address(value, example)


def _prefix(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(_PREFIX, value):
        raise refusal("must begin with a letter and go on with letters, digits, _ and -")
    return value


def _variables(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, content in value.items():
        if not re.fullmatch(_VARIABLE, name) or "\0" in content.get_secret_value():
            raise refusal(f"has {name!r}, which cannot be set as an environment variable")
    return value


def _absolute(value: Path) -> Path:
    if value.absolute() == Path("/"):
        raise refusal("must be a path below the root directory")
    return value.absolute()


def _command(value: tuple[str, ...]) -> tuple[str, ...]:
    return (located_file(value[0]), *value[1:]) if value else ()


Paths = Annotated[FilePath, AfterValidator(_absolute)]
Command = Annotated[tuple[str, ...], AfterValidator(_command)]


class ToolAnnotations(Effects):
    """The effects of tools, in place of what their server claims."""

    open_world: bool | None = Field(default=None, examples=[False])
    """Whether the tools reach other services, such as web sites."""


class McpOAuth(Section):
    """The account of this service at the authorization server of an MCP server (OAuth 2.1, client
    credentials).
    """

    issuer: Annotated[str, AfterValidator(_address("https://auth.example.com"))] = Field(
        examples=["https://auth.example.com"]
    )
    """Issuer of the authorization server. The credentials are sent to no other one."""
    client_id: str = Field(examples=["xmpp-agent"])
    """Id of the client."""
    client_secret: SecretStr = Field(examples=["${MCP_CLIENT_SECRET}"])
    """Its secret. Keep it out of this file."""


class McpServer(Section):
    """An MCP server (https://modelcontextprotocol.io). Its tools are offered as skills named
    `NAME.tool`. It needs the `mcp` extra. See docs/how-to/mcp.md.
    """

    command: Annotated[tuple[str, ...], AfterValidator(_command)] = Field(
        default=(), examples=[["mcp-server-time"]]
    )
    """Program to start, and its arguments. The server speaks on its standard input and output."""
    url: Annotated[str, AfterValidator(_address("https://mcp.example.com/mcp"))] = Field(
        default="", examples=["https://mcp.example.com/mcp"]
    )
    """URL of a server that runs elsewhere (streamable HTTP), instead of command."""
    env: Annotated[dict[str, SecretStr], AfterValidator(_variables)] = Field(
        default_factory=dict, examples=[{"GITHUB_TOKEN": "${GITHUB_TOKEN}"}]
    )
    """Environment variables of the program. It gets no others, except PATH, LANG and a HOME of its
    own.
    """
    readable: tuple[Paths, ...] = Field(default=(), examples=[["/srv/notes"]])
    """Files and directories that the program may read, besides itself and the system's programs and
    libraries.
    """
    writable: tuple[Paths, ...] = Field(default=(), examples=[["/srv/notes"]])
    """Files and directories that the program may read and change."""
    network: bool = False
    """Whether the program may connect to other machines."""
    processes: bool = False
    """Whether the program may start other programs, such as git."""
    memory_bytes: Count = Field(default=536_870_912, ge=16_777_216)
    """Maximum memory of each process of the program, in bytes."""
    headers: Headers = Field(
        default_factory=dict, examples=[{"Authorization": "Bearer ${MCP_TOKEN}"}]
    )
    """HTTP header fields to send to url."""
    oauth: McpOAuth | None = None
    """How the service is authorized at url, if by OAuth."""
    prefix: Annotated[str | None, AfterValidator(_prefix)] = Field(default=None, examples=["clock"])
    """Prefix of the names of its skills, in place of NAME. If it is empty, skills are named like
    the tools.
    """
    tools: tuple[str, ...] = Field(default=("*",), examples=[["get_*"]])
    """Tools to offer, by their names on the server; `*` and `?` as in policy rules."""
    read_only: tuple[str, ...] = Field(default=(), examples=[["get_*", "convert_time"]])
    """Tools that change nothing. All others count as destructive, so people are asked before they
    run. A tool that its server declares to be writing is not included.
    """
    annotations: dict[str, ToolAnnotations] = Field(default_factory=dict)
    """Effects of the tools whose names match, in place of read_only and of all that the server
    claims. The first pattern that matches applies.
    """
    questions: dict[str, str] = Field(
        default_factory=dict, examples=[{"delete_file": "May I delete {path}?"}]
    )
    """Questions that ask people to confirm the tools whose names match: {name} stands for the value
    of a parameter. A part in brackets is left out unless its parameters differ from their defaults.
    The first pattern that matches applies. Default: the title and the parameters.
    """
    trusted_annotations: bool = False
    """Believe what the server says about the effects of its tools. Otherwise its claims never make
    a rule less strict.
    """
    taint: SourceTaint = "web"
    sampling: bool = False
    """Answer the server's requests to a language model, at the expense of the person who calls the
    tool.
    """
    shared: bool = False
    """Whether all people share one process or session of the server. Otherwise each person has one
    of their own.
    """
    max_connections: Count = 8
    """Maximum number of processes or sessions for people at a time."""
    idle_s: Seconds = 300
    """Seconds without a call after which a person's process is ended."""
    start_timeout_s: Seconds = 30
    """Seconds within which the server must start and list its tools."""
    timeout_s: Seconds = 60
    """Seconds for one call of a tool."""
    max_message_bytes: Count = Field(default=4_194_304, ge=4096)
    """Maximum size of a message of the server. A larger one ends the connection."""

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise refusal("needs command or url, and only one of them")
        if self.command and not self.command[0]:
            raise refusal("needs the name of a program at the beginning of command")
        for name in ("headers", "oauth") if self.command else _OF_PROGRAMS:
            if getattr(self, name):
                other = "url" if self.command else "command"
                raise refusal(f"has {name}, which has no effect without {other}: remove it")
        return self


def _named(value: dict[str, McpServer]) -> dict[str, McpServer]:
    for name in value:
        if not re.fullmatch(_NAME, name):
            raise refusal(
                f"has {name!r}, which is not a name: begin with a letter, go on with letters,"
                " digits, _ and -, at most 32 characters"
            )
    return value


SERVERS: Final = named_tables("mcp", McpServer, _named)
SECTIONS: Final[tuple[Top[Any], ...]] = (SERVERS,)


def is_used(settings: Settings) -> bool:
    """Return whether there is a server."""
    return bool(settings[SERVERS])


def described_sources(settings: Settings) -> Iterable[str]:
    """Yield the names of the servers whose descriptions of tools wait for an admin."""
    for name, entry in settings[SERVERS].items():
        if entry.taint != "person":
            yield f"mcp.{name}"
