"""The sections about the audit log and traces."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from component.settings.kinds import Count, Section, http_address, refusal


class Audit(Section):
    """Audit log of all actions and decisions: files in `audit/` of the data directory."""

    enabled: bool = Field(
        default=True,
        description="Write the audit log. Without it, nobody can find out later who did what.",
    )
    on_failure: Literal["refuse", "continue"] = Field(
        default="refuse",
        description="What to do when the disk is full and the buffer in memory is used up: refuse"
        " rejects new requests until the log can be written, continue accepts them and records"
        " how many entries were lost.",
    )
    keep_days: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Days after which files of the log are removed; the removal is logged too. 0"
        " keeps them for ever.",
    )
    lines_per_minute: Annotated[int, Field(ge=0)] = Field(
        default=600,
        description="Maximum number of lines per minute for what one principal does. Further events"
        " are counted, and their numbers are lines at the end of the minute. Decisions of people"
        " and commands of admins always have lines of their own. 0 is no limit.",
    )
    max_file_bytes: Count = Field(
        default=67108864,
        ge=65536,
        description="Size in bytes at which a new file is started; a new file is also started"
        " each day (UTC). At least 65536.",
    )


def _endpoint(value: str) -> str:
    if urlsplit(http_address(value, "http://127.0.0.1:4318")).password is not None:
        raise refusal("contains a password: put it into traces.authorization")
    return value


class Traces(Section):
    """Traces of turns, model calls and tool calls for OpenTelemetry, by OTLP over HTTP."""

    endpoint: Annotated[str, AfterValidator(_endpoint)] = Field(
        default="",
        examples=["http://127.0.0.1:4318"],
        description="Base address of a collector; /v1/traces is added. Default: no traces. It "
        "needs the `otel` extra.",
    )
    authorization: SecretStr = Field(
        default=SecretStr(""),
        examples=["${TRACES_AUTHORIZATION}"],
        description="Value of the Authorization header, if the collector requires one, such as "
        "`Bearer …`. Keep it out of this file.",
    )
    sample: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0, description="Fraction of the turns that is traced, from 0 to 1."
    )
