"""The command by which people let an agent keep its memories in their account."""

from typing import Final, Literal

import msgspec

from component.commands import AnyCommand, Asking, CommandError, CommandResult, Outline
from component.features.memory_nodes.account_nodes import AccountMemories
from component.memory_directory.layout import SessionKey
from xep.fluux_agent.memory import NAMESPACE
from xep.stanza_error import StanzaError


class HomeParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the agent may keep its memories of a person in their account.

    Args:
        choice: allow to let me keep what I remember about you in your account, stop to end that.
            Default: show where it is kept.
    """

    choice: Literal["show", "allow", "stop"] = "show"


class HomeRow(msgspec.Struct, frozen=True):
    """Where memories are kept: whether the person has consented, and the server permits it."""

    node: str
    allowed: bool
    offered: bool


MEMORY_HOME: Final = Outline(
    name="memory-home",
    title="Memory in your account",
    about="show whether I keep what I remember about you in your account; allow or stop that",
    params=HomeParams,
    group="conversation",
)


class MemoryHomeCommands:
    """The command.

    Args:
        default_agent: the name of the agent that is asked at the domain.
    """

    def __init__(self, accounts: AccountMemories, default_agent: str) -> None:
        self._accounts = accounts
        self._default_agent = default_agent

    def commands(self) -> tuple[AnyCommand, ...]:
        """All of them."""
        return (MEMORY_HOME.done_by(self._choose),)

    async def _choose(self, asking: Asking, params: HomeParams) -> CommandResult:
        if asking.principal is None:
            raise CommandError("Only people themselves can decide this, over XMPP.")
        if asking.room is not None:
            raise CommandError("This works only in a conversation with me alone, not in a room.")
        whose = SessionKey(asking.agent or self._default_agent, asking.principal.bare)
        if params.choice == "allow":
            return await self._allow(whose)
        if params.choice == "stop":
            return await self._stop(whose)
        allowed, offered = await self._accounts.is_allowed(whose), self._accounts.is_offered(whose)
        return CommandResult(_shown(whose, allowed, offered), HomeRow(NAMESPACE, allowed, offered))

    async def _allow(self, whose: SessionKey) -> CommandResult:
        if not self._accounts.is_offered(whose):
            raise CommandError(_not_offered(whose), "choice")
        await self._accounts.allow(whose)
        return CommandResult(
            f"I keep what I remember about you in your account now, on the node {NAMESPACE}. Only"
            " you and I can read it. Send /memory-home stop to end that.",
            HomeRow(NAMESPACE, allowed=True, offered=True),
        )

    async def _stop(self, whose: SessionKey) -> CommandResult:
        try:
            stopped = await self._accounts.stop(whose)
        except StanzaError as error:
            raise CommandError(
                "I do not use the node in your account any more, but your server still lists me as"
                f" a member of it: {error}. You can remove me there."
            ) from None
        row = HomeRow(NAMESPACE, allowed=False, offered=self._accounts.is_offered(whose))
        if not stopped:
            return CommandResult("You have not allowed me to use your account.", row)
        return CommandResult(
            f"I do not use the node {NAMESPACE} in your account any more. What is on it stays"
            " there, and what I remember about you stays with me. /forget deletes the latter.",
            row,
        )


def _shown(whose: SessionKey, allowed: bool, offered: bool) -> str:
    if not offered:
        return _not_offered(whose)
    if allowed:
        return (
            f"I keep what I remember about you in your account, on the node {NAMESPACE}. Send"
            " /memory-home stop to end that."
        )
    return (
        f"I can keep what I remember about you in your account, on the node {NAMESPACE}, where you"
        f" can read, correct and delete it. The server {whose.who.domain} lets me do that on your"
        " behalf; I would use no other node. Send /memory-home allow to allow it."
    )


def _not_offered(whose: SessionKey) -> str:
    return (
        f"The server {whose.who.domain} does not let me act on your behalf. You can create the"
        f" node {NAMESPACE} in your account yourself, and make me a publisher of it."
    )
