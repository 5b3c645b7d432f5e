"""The command about grants and keys, for admins."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from anyio.lowlevel import checkpoint

from component.commands import AnyCommand, Asking, CommandError, CommandResult, Outline
from component.features.peers import grant_rows
from component.grants import Budget
from component.store.database import Database
from component.store.storage import Storage
from xep.jid import JID


class GrantParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the command.

    Args:
        do: list the grants for calls of peers, revoke one, or make new keys for all agents.
        grant: With revoke: the identifier of the grant.
        work: With revoke: cancel the call that the grant is for, or keep it where it has begun.
    """

    do: Annotated[Literal["list", "revoke", "new-keys"], msgspec.Meta(title="Action")] = "list"
    grant: str = ""
    work: Annotated[Literal["cancel", "keep"], msgspec.Meta(title="Its call")] = "cancel"


GRANTS = Outline(
    name="grants",
    title="Grants",
    about="list what other agents may do for people of this one, revoke it and cancel the work, or"
    " make new keys",
    params=GrantParams,
    who="admin",
)


class GrantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A grant, as programs get it. `expires` is in UTC, in the format of RFC 3339. `left_usd` and
    `left_tokens` are what agents further on have neither spent nor set aside; they are None without
    a limit.
    """

    id: str
    state: str
    task: str
    agent: str
    person: str
    peer: str
    skills: str
    expires: str
    budget_usd: float | None = None
    left_usd: float | None = None
    budget_tokens: int | None = None
    left_tokens: int | None = None


class GrantCommands:
    """The command about grants and keys. `changed` is called after a revocation."""

    def __init__(
        self,
        storage: Storage,
        agents: Sequence[JID],
        changed: Callable[[], Awaitable[None]] = checkpoint,
    ) -> None:
        self._storage = storage
        self._agents = agents
        self._changed = changed

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (GRANTS.done_by(self._run),)

    async def _run(self, _asking: Asking, params: GrantParams) -> CommandResult:
        match params.do:
            case "revoke":
                return await self._revoke(params.grant, cancels=params.work == "cancel")
            case "new-keys":
                await self._storage.write(self._roll)
                return CommandResult(
                    "All agents have new keys. The old ones stay published until the grants that"
                    " they have signed have expired."
                )
        found = await self._storage.read(_listed)
        text = "\n".join(_line(one) for one in found) or "There are no grants."
        return CommandResult(text, found)

    async def _revoke(self, grant: str, *, cancels: bool) -> CommandResult:
        op = partial(grant_rows.revoke, grant=grant, cancels=cancels)
        if not await self._storage.write(op):
            raise CommandError(f"There is no grant {grant[:80]!r}.", "grant")
        if not cancels:
            return CommandResult(
                f"Revoked {grant}. Agents that ask about it learn this at once, and begin nothing"
                " more with it. What has begun continues."
            )
        await self._changed()
        return CommandResult(
            f"Revoked {grant}. Its call is cancelled at all agents that work for it, and agents"
            " that ask about the grant learn this at once."
        )

    def _roll(self, database: Database) -> None:
        for agent in self._agents:
            grant_rows.current_key(database, str(agent), roll=True)


def _listed(database: Database) -> list[GrantRow]:
    rows = []
    for one in grant_rows.issued(database):
        found = grant_rows.state_of(database, one.digest)
        rest = grant_rows.left(database, one)
        rows.append(_row(one, found[1] if found else "ended", rest))
    return rows


def _row(one: grant_rows.Issued, state: str, rest: Budget) -> GrantRow:
    budget = one.budget
    expires = datetime.fromtimestamp(one.expires // 1000, UTC)
    return GrantRow(
        id=one.id,
        state=state,
        task=one.task,
        agent=one.issuer,
        person=one.subject,
        peer=one.audience,
        skills=one.skills,
        expires=f"{expires:%Y-%m-%dT%H:%M:%SZ}",
        budget_usd=None if budget.usd is None else float(budget.usd),
        left_usd=None if rest.usd is None else float(rest.usd),
        budget_tokens=budget.tokens,
        left_tokens=rest.tokens,
    )


def _line(row: GrantRow) -> str:
    return (
        f"{row.id} {row.state}: {row.peer} may use {row.skills} for {row.person}"
        f" until {row.expires}{_left(row)} (task {row.task})"
    )


def _left(row: GrantRow) -> str:
    said = ""
    if row.budget_usd is not None:
        said += f", {row.left_usd:g} of {row.budget_usd:g} USD left"
    if row.budget_tokens is not None:
        said += f", {row.left_tokens} of {row.budget_tokens} tokens left"
    return said
