"""The sections about the operation of the service: its log, data, traces and PubSub nodes."""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from component.config.kinds import (
    Count,
    Domain,
    FilePath,
    Port,
    Section,
    http_address,
    refusal,
    without_brackets,
)


class Log(Section):
    """Log output on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""
    format: Literal["auto", "human", "json"] = "auto"
    """human for text, json for one JSON object per line; auto is human on a terminal and in the
    journal of systemd, and json otherwise.
    """


class Storage(Section):
    """Storage of tasks and other data."""

    path: FilePath = Path("./data")
    """Data directory; created if it does not exist. This and all other relative paths in the file
    are relative to the directory of the file.
    """
    postgres: SecretStr = Field(default=SecretStr(""), examples=["${AGENT_DATABASE}"])
    """Connection string of a PostgreSQL database, such as
    `postgresql://agent:password@db.example.com/agent`: tasks and subscriptions are stored there
    instead of in path, and several processes may share it, each with a different path. It needs the
    `postgres` extra. Empty means SQLite. It contains a password: keep it out of this file.
    """


class Audit(Section):
    """Audit log of all actions and decisions: files in `audit/` of the data directory."""

    enabled: bool = True
    """Write the audit log. Without it, nobody can find out later who did what."""
    on_failure: Literal["refuse", "continue"] = "refuse"
    """What to do when the disk is full and the buffer in memory is used up: refuse rejects new
    requests until the log can be written, continue accepts them and records how many entries were
    lost.
    """
    keep_days: Annotated[int, Field(ge=0)] = 0
    """Days after which files of the log are removed; the removal is logged too. 0 keeps them for
    ever.
    """
    lines_per_minute: Annotated[int, Field(ge=0)] = 600
    """Maximum number of lines per minute for what one principal does. Further events are counted,
    and their numbers are lines at the end of the minute. Decisions of people and commands of admins
    always have lines of their own. 0: no limit.
    """
    max_file_bytes: Count = Field(default=67108864, ge=65536)
    """Size in bytes at which a new file is started; a new file is also started each day (UTC). At
    least 65536.
    """


def _endpoint(value: str) -> str:
    if urlsplit(http_address(value, "http://127.0.0.1:4318")).password is not None:
        raise refusal("contains a password: put it into traces.authorization")
    return value


class Traces(Section):
    """Traces of turns, model calls and tool calls for OpenTelemetry, by OTLP over HTTP."""

    endpoint: Annotated[str, AfterValidator(_endpoint)] = Field(
        default="", examples=["http://127.0.0.1:4318"]
    )
    """Base address of a collector; /v1/traces is added. Default: no traces. It needs the `otel`
    extra.
    """
    authorization: SecretStr = Field(default=SecretStr(""), examples=["${TRACES_AUTHORIZATION}"])
    """Value of the Authorization header, if the collector requires one, such as `Bearer …`. Keep it
    out of this file.
    """
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Fraction of the turns that is traced, from 0 to 1."""


class PubSub(Section):
    """The PubSub nodes of the agents (docs/reference/pubsub.md). Admins may create more of them."""

    ask_presence: bool = False
    """Whether an agent asks a contact that subscribes to it for its presence in return. Then
    clients that announce an interest in a node (`+notify`) are notified without a subscription to
    it. Off by default, because a client may ask its user about the request.
    """


class Uploads(Section):
    """Where files for people are put, and results that do not fit into a stanza."""

    address: Domain | None = Field(default=None, examples=["upload.example.com"])
    """Address of the HTTP upload service (XEP-0363). Default: those that the server lists. What
    they do not take is kept here if [http] has a url; see [shared_files].
    """


def _host(value: str) -> str:
    try:
        return str(ipaddress.ip_address(without_brackets(value)))
    except ValueError:
        raise refusal("must be an IP address, such as 127.0.0.1, ::1 or 0.0.0.0") from None


def _url(value: str) -> str:
    if not value:
        return value
    parts = urlsplit(http_address(value, "https://agent.example.com"))
    if parts.query or parts.fragment or parts.password is not None:
        raise refusal("must be a URL without query and password: https://agent.example.com")
    return value.rstrip("/")


class Http(Section):
    """The HTTP listener: it receives webhooks, and serves files. It needs the `webhooks` extra."""

    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    """IP address to listen on. There is no TLS: put a reverse proxy in front of it, and leave this
    as it is if the proxy runs on the same machine.
    """
    port: Port | None = Field(default=None, examples=[8470])
    """TCP port to listen on. Nothing listens unless it is set."""
    url: Annotated[str, AfterValidator(_url)] = Field(
        default="", examples=["https://agent.example.com"]
    )
    """URL at which others reach the listener through the reverse proxy. With it, files are served
    that the server's upload service does not take.
    """
