"""The sections about workers: other machines that run skills."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, SecretStr

from component.config.kinds import Count, Seconds, Section, refusal
from component.config.model import Settings
from component.config.sections import Top, list_of_tables, optional_table

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


def _queue_name(value: str) -> str:
    if not re.fullmatch(_NAME, value):
        raise refusal(
            f"has {value!r}, which is not a name: use letters, digits, '.', '_' and '-', at most 64"
            " characters, and begin with a letter or a digit"
        )
    return value


def _database(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.startswith(("postgresql://", "postgres://")) and "=" not in text:
        raise refusal(
            "must be a connection string of PostgreSQL, such as"
            " postgresql://agent:password@db.example.com/queue"
        )
    return value


Database = Annotated[SecretStr, AfterValidator(_database)]
QueueName = Annotated[str, AfterValidator(_queue_name)]
_DATABASE: Final = (
    "Connection string of the PostgreSQL database that has the queue, such as"
    " `postgresql://agent:password@db.example.com/queue`. It may be that of `storage.postgres`."
    " It contains a password: keep it out of this file."
)


class WorkersEntry(Section):
    """A queue of workers: processes on other machines (`xmpp-agent worker`) that run skills. Their
    skills are offered like all others. It needs the `workers` extra. See docs/how-to/workers.md.
    """

    database: Database = Field(examples=["${QUEUE_DATABASE}"], description=_DATABASE)
    queue: QueueName = "default"
    """Name of the queue. Workers with the same name serve it."""
    skills: tuple[str, ...] = Field(default=("*",), examples=[["render.*"]])
    """Skills to offer, of those that the workers have; `*` and `?` as in policy rules."""
    taint: Literal["person", "peer", "web", "file"] | None = Field(default=None, examples=["web"])
    """Least trusted possible author of the texts in results, in place of what the skills declare,
    and of their descriptions. Changed descriptions then wait for an admin.
    """
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Priority of the calls of this service. Workers take calls with a higher priority first."""
    wait_s: Seconds = 60
    """Seconds that a call may wait for a free worker, in addition to the time-out of its skill."""
    stop_s: Seconds = 5
    """Seconds that a cancelled call waits for its worker to confirm the cancellation. Then its
    outcome is unknown, unless its skill is read-only or idempotent.
    """
    max_argument_bytes: Count = 1_048_576
    """Maximum size of the parameters of a call, in bytes."""
    max_result_bytes: Count = 16_777_216
    """Maximum size of the result of a call with its files, in bytes."""


class Worker(Section):
    """The worker that `xmpp-agent worker` runs: a process that runs the skills of `[skills]` for
    services whose `[[workers]]` names the same queue. It needs the `workers` extra. See
    docs/how-to/workers.md.
    """

    database: Database = Field(examples=["${QUEUE_DATABASE}"], description=_DATABASE)
    queue: QueueName = "default"
    """Name of the queue to serve."""
    name: Annotated[str, Field(max_length=100)] = Field(default="", examples=["render-1"])
    """Name of the worker in logs and errors. Default: the name of the machine."""
    skills: tuple[str, ...] = Field(default=("*",), examples=[["render.*"]])
    """Skills to run, of those of `[skills]`; `*` and `?` as in policy rules."""
    concurrency: Count = 4
    """Maximum number of calls at the same time."""
    lost_after_s: Seconds = Field(default=5, ge=0.5)
    """Seconds without a sign of life after which the worker counts as lost. Longer than a skill may
    block the event loop.
    """
    drain_s: Seconds = 30
    """Seconds that running calls have to end when the worker is stopped."""


def _queues_differ(entries: tuple[WorkersEntry, ...]) -> tuple[WorkersEntry, ...]:
    names = [(entry.database.get_secret_value(), entry.queue) for entry in entries]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refusal(f"has the queue {twice[1]!r} twice: give each entry another queue")
    return entries


QUEUES: Final = list_of_tables("workers", WorkersEntry, _queues_differ)
WORKER: Final = optional_table("worker", Worker)
SECTIONS: Final[tuple[Top[Any], ...]] = (QUEUES, WORKER)


def is_used(settings: Settings) -> bool:
    """Return whether there is a queue of workers."""
    return bool(settings[QUEUES] or settings[WORKER])


def described_sources(settings: Settings) -> Iterable[str]:
    """Yield the names of the queues whose descriptions of skills wait for an admin."""
    for entry in settings[QUEUES]:
        if entry.taint not in (None, "person"):
            yield f"workers.{entry.queue}"
