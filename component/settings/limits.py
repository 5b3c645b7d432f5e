"""The sections about how much there may be at a time: requests, threads, tasks."""

from pydantic import Field, ValidationInfo, field_validator

from component.settings.kinds import Count, Seconds, Section, refusal


class Limits(Section):
    """How much one principal (a bare JID) and all of them together may ask for at a time."""

    requests_per_principal: Count = Field(
        default=64,
        description="Requests of one principal in work or waiting. One more is refused at once "
        "with `resource-constraint` and a hint when to retry.",
    )
    requests_total: Count = Field(
        default=1024,
        description="Requests of everybody in work or waiting; refused in the same way. A principal"
        " may have as many as are still free, so that one who has none finds room; a sixteenth is"
        " kept for admins.",
    )
    threads_per_principal: Count = Field(
        default=8,
        description="Worker threads that the plain (not async) skills of one principal may hold.",
    )
    threads_total: Count = Field(
        default=32,
        description="Worker threads for plain skills altogether. If this is at least twice"
        " threads_per_principal, a principal holds no more than are still free.",
    )
    retry_after_s: Count = Field(
        default=2,
        description="Hint in whole seconds, sent with a refusal for want of room.",
    )
    inline_s: Seconds = Field(
        default=10,
        description="Seconds a skill may take to answer within its IQ.",
    )
    iq_timeout_s: Seconds = Field(
        default=30, description="Seconds to wait for the answer to an IQ of the agent's own."
    )
    output_bytes: Count = Field(
        default=8388608,
        ge=262144,
        description="Bytes that may wait to be sent to a server that reads slowly; at least "
        "262144. At the bound new requests are refused until the server has caught up.",
    )

    @field_validator("requests_total", "threads_total")
    @classmethod
    def _holds_a_share(cls, value: int, info: ValidationInfo) -> int:
        share = f"{str(info.field_name).removesuffix('_total')}_per_principal"
        if value < info.data.get(share, value):
            raise refusal(f"must not be smaller than limits.{share}")
        return value


class Tasks(Section):
    """Work that outlives its request: how much of it there may be, and how long it is kept."""

    per_principal: Count = Field(
        default=100,
        description="Tasks of one principal that may be open: waiting, running, or asking "
        "something. One more is refused with `resource-constraint` and a hint when to retry.",
    )
    open_bytes_per_principal: Count = Field(
        default=16000000,
        description="Bytes that the requests of a principal's open tasks may have together; one "
        "more is refused in the same way.",
    )
    ended_per_principal: Count = Field(
        default=1000,
        description="Ended tasks that are kept for one principal. Beyond that those that ended "
        "first are removed, although retention_s has not passed.",
    )
    ended_bytes_per_principal: Count = Field(
        default=16000000,
        description="Bytes of ended tasks that are kept for one principal, and as many of answers "
        "to requests that may be repeated. Beyond that the oldest are removed in the same way.",
    )
    running_total: Count = Field(
        default=64,
        description="Tasks that run at the same time; the others wait for their turn. If this is at"
        " least twice running_per_principal, of one principal no more run than could still run.",
    )
    running_per_principal: Count = Field(
        default=16,
        description="Tasks of one principal that run at the same time.",
    )
    replay_s: Seconds = Field(
        default=86400,
        description="Seconds for which a request that is sent again gets the answer of the first.",
    )
    retention_s: Seconds = Field(
        default=604800,
        description="Seconds for which a task and its result are kept after its end.",
    )
    ask_s: Seconds = Field(
        default=86400,
        description="Seconds after which a question of a skill lapses that names no other time.",
    )
    poll_after_s: Count = Field(
        default=5,
        description="Hint in whole seconds to callers: how long to wait before asking for a task.",
    )
