"""A handler of messages with the stages of the feature, and those of a test."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import anyio

from component.commands import Commands
from component.features.chat.handlers import MessageHandler
from component.features.chat.message_ids import References
from component.features.chat.stages import (
    ENCRYPTED_STAGE,
    AgentStages,
    CommandStages,
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
    references = References()
    called = CommandStages(commands, references, _refuse)
    stages = [
        *more,
        *([] if limit is None else [exchange_stage(limit)]),
        ENCRYPTED_STAGE,
        *called.stages(),
        *(
            stages_without_model(is_admin, is_person, now, clock)
            if agents is None
            else AgentStages(
                agents, agent_at, let_in, references, called.is_replacement, now
            ).stages()
        ),
    ]
    stages.sort(key=attrgetter("order"))
    return MessageHandler(messages, stages, now=now, **ports)


async def _refuse(*_: object) -> bool:
    return False
