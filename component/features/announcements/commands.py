"""The command by which admins have an agent announce something to all who follow it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final

import msgspec

from component.commands import AnyCommand, Asking, CommandError, CommandResult, Outline, agent_of
from xep.stanza_error import StanzaError

_LONGEST: Final = 5_000


class AnnounceParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to announce.

    Args:
        text: What to announce.
        agent: Name of the agent that announces it. Default: the one you write to, or the default
            agent.
    """

    text: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    agent: str = ""


class Announcement(msgspec.Struct, frozen=True):
    """An announcement that was published: the agent, and the id of the item."""

    agent: str
    id: str


ANNOUNCE: Final = Outline(
    name="announce",
    title="Announce",
    about="publish an announcement to everybody who follows the agent",
    params=AnnounceParams,
    who="admin",
    group="agents",
)


def announcement_commands(
    publish: Callable[[str, str], Awaitable[str]], agents: Sequence[str]
) -> tuple[AnyCommand, ...]:
    """Return the command. `publish` publishes the text (second) of an agent (first), and returns
    the id of the item. Raises StanzaError and StorageError. `agents` are the names of the agents,
    the default one first.
    """

    async def announce(asking: Asking, params: AnnounceParams) -> CommandResult:
        agent = agent_of(params.agent, agents, asking.agent or "")
        text = " ".join(params.text).strip()
        if not text or len(text) > _LONGEST:
            raise CommandError(f"An announcement has 1 to {_LONGEST} characters.", "text")
        try:
            id_ = await publish(agent, text)
        except StanzaError as error:
            raise CommandError(f"The announcement was not published: {error}") from None
        return CommandResult("Announced.", Announcement(agent, id_))

    return (ANNOUNCE.done_by(announce),)
