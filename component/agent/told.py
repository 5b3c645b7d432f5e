"""Adds to a conversation what the person was told outside of a turn.

The result of a skill that a schedule has run reaches the person as a notification. Without its
lines, the model would not know what the person answers to.
"""

from collections.abc import Iterable

from component.agent import history
from component.agent.journal import Sessions
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint


async def add_told(
    sessions: Sessions,
    key: SessionKey,
    id_: str,
    *,
    about: str,
    text: str,
    taints: Iterable[Taint] = (),
) -> None:
    """Add a message of the agent to a conversation, once. Raises StorageError.

    Args:
        sessions: the conversations.
        key: the conversation.
        id_: identifies the message.
        about: what it is, in one sentence of this service.
        text: the message.
        taints: who could have written it.
    """
    if await sessions.turn(key, id_):
        return
    note = f"[This is not a message of the person. {about} The person was told, by a notification:]"
    await sessions.append(
        key,
        (
            Said(role="user", content=note, turn=id_),
            Said(
                role="assistant",
                content=text,
                turn=id_,
                final=True,
                taints=history.in_order(frozenset(taints)),
            ),
        ),
        sync=True,
    )
