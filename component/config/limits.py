"""The sections about limits: requests, threads, tasks."""

from pydantic import Field, ValidationInfo, field_validator

from component.config.kinds import Count, Seconds, Section, refusal


class RequestLimits(Section):
    """Limits for the requests of one principal (a bare JID) and of all principals."""

    requests_per_principal: Count = 64
    """Maximum number of running and waiting requests of one principal. Further requests are
    rejected with `resource-constraint` and a hint when to retry.
    """
    requests_total: Count = 1024
    """Maximum number of running and waiting requests in total. One principal may use at most as
    many as are still free, so that others are served too; a sixteenth is reserved for admins.
    """
    threads_per_principal: Count = 8
    """Maximum number of threads for the synchronous skills of one principal."""
    threads_total: Count = 32
    """Maximum number of threads for synchronous skills. If this is at least twice
    threads_per_principal, one principal uses at most as many threads as are still free.
    """
    messages_per_sender: Count = 30
    """Maximum number of chat messages that one sender may send in quick succession in one thread.
    The limit for all threads together is ten times as high. Both limits recover over ten minutes.
    After half of the messages, the agent waits two seconds before each answer. When the limit is
    reached, the agent says so once and stops answering until the sender has been silent for a
    minute. This ends exchanges with programs that answer every message.
    """
    retry_after_s: Count = 2
    """Hint in whole seconds when to retry, sent with a rejection because of a limit."""
    inline_s: Seconds = 10
    """Seconds that a skill may take to answer in the IQ itself."""
    iq_timeout_s: Seconds = 30
    """Seconds to wait for the answer to an IQ that the agent has sent."""
    output_bytes: Count = Field(default=8388608, ge=262144)
    """Maximum number of bytes that wait to be sent to a slow server; at least 262144. Above this
    limit, new requests of those for whom most waits are rejected; above twice the limit the oldest
    stanzas for them are dropped, messages and questions to people last.
    """

    @field_validator("requests_total", "threads_total")
    @classmethod
    def _holds_a_share(cls, value: int, info: ValidationInfo) -> int:
        share = f"{str(info.field_name).removesuffix('_total')}_per_principal"
        if value < info.data.get(share, value):
            raise refusal(f"must not be smaller than limits.{share}")
        return value


class Queue(Section):
    """The limits of a named queue, `[tasks.queues.NAME]`, for all instances together."""

    running: Count = 1
    """Maximum number of tasks of the queue that run at the same time."""
    per_minute: Seconds | None = Field(default=None, examples=[30])
    """Maximum number of tasks of the queue that start per minute. Default: no limit."""


class Tasks(Section):
    """Limits for tasks, which are requests that take longer, and how long they are stored."""

    per_principal: Count = 100
    """Maximum number of open tasks of one principal: waiting, running, or asking a question.
    Further requests are rejected with `resource-constraint` and a hint when to retry.
    """
    open_bytes_per_principal: Count = 16000000
    """Maximum size in bytes of the requests of a principal's open tasks; further requests are
    rejected.
    """
    ended_per_principal: Count = 1000
    """Maximum number of ended tasks that are stored for one principal. Beyond it the oldest are
    removed before retention_s has passed.
    """
    ended_bytes_per_principal: Count = 16000000
    """Maximum size in bytes of the ended tasks of one principal, and of the stored answers to its
    requests. Beyond it the oldest are removed.
    """
    running_total: Count = 64
    """Maximum number of tasks that run at the same time; the others wait. If this is at least twice
    running_per_principal, one principal uses at most as many as are still free.
    """
    running_per_principal: Count = 16
    """Maximum number of tasks of one principal that run at the same time."""
    replay_s: Seconds = 86400
    """Seconds during which a repeated request with the same `request` identifier gets the answer of
    the first one. Without an identifier it is 60 seconds.
    """
    records_per_principal: Count = 20000
    """Maximum number of requests that are recorded for one principal to recognise repetitions.
    Beyond it new requests are rejected until the oldest record expires.
    """
    retention_s: Seconds = 604800
    """Seconds for which a task and its result are stored after its end."""
    ask_s: Seconds = 86400
    """Seconds after which a skill's question expires, unless the skill sets another time."""
    max_attempts: Count = 3
    """Number of times in a row that a task may be interrupted by the end of its process. Then it is
    set aside until an operator releases or cancels it.
    """
    queues: dict[str, Queue] = Field(default_factory=dict)
    """Limits of named queues, which skills select with `@skill(queue=…)`."""
    poll_after_s: Count = 5
    """Hint for callers in whole seconds: how long to wait between queries for a task."""
