"""A handler of messages with the stages of the feature, and those of a test."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import anyio

from component.commands import Commands
from component.features.chat.handlers import MessageHandler
from component.features.chat.stages import (
    ENCRYPTED_STAGE,
    AgentStages,
    command_stage,
    exchange_stage,
    stages_without_model,
)
from component.kernel.exchange_limit import ExchangeLimit
from component.link.messages.inbound import MessageStage


def message_handler(
    messages: Any,
    commands: Commands,
    more: Sequence[MessageStage] = (),
    *,
    agents: Any = None,
    agent_at: Callable[[Any], str] = lambda at: at.local or "assistant",
    let_in: Callable[[Any], None] = lambda _: None,
    limit: ExchangeLimit | None = None,
    is_admin: Callable[[Any], bool] = lambda _: False,
    is_person: Callable[[Any, Any], bool | None] = lambda _principal, _sender: None,
    clock: Callable[[], float] = anyio.current_time,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    **ports: Any,
) -> MessageHandler:
    stages = [
        *more,
        *([] if limit is None else [exchange_stage(limit)]),
        ENCRYPTED_STAGE,
        command_stage(commands),
        *(
            stages_without_model(is_admin, is_person, now, clock)
            if agents is None
            else AgentStages(agents, agent_at, let_in, now).stages()
        ),
    ]
    stages.sort(key=attrgetter("order"))
    return MessageHandler(messages, stages, now=now, **ports)
