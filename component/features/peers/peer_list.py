"""The command that lists peers, for admins."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from component import system
from component.commands import AnyCommand, Asking, CommandResult, NoParams, Outline
from component.config.peers import Peer
from component.features.peers import rows
from component.features.peers.reach import Reach
from component.features.peers.rows import PeerUse
from component.store.database import Database
from component.store.storage import Storage

PEERS: Final = Outline(
    name="peers",
    title="Peers",
    about="list the agents elsewhere that this one uses, and that use it",
    params=NoParams,
    who="admin",
    only_reads=True,
)


class PeerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A peer, as programs get it.

    `uses` and `offers` are those of its section. `answers` is `unknown` if nothing was heard of it
    lately. `skills` is the number of those that it offers here, and `known_until` is when it has to
    be asked for them again, in UTC, in the format of RFC 3339; both are None if they are not known.
    The costs are those of today (UTC), of open calls what they may cost.
    """

    name: str
    address: str
    uses: tuple[str, ...]
    offers: tuple[str, ...]
    answers: Literal["yes", "no", "unknown"]
    skills: int | None
    known_until: str | None
    open_calls: int
    usd: float
    day_usd: float | None
    tokens: int
    day_tokens: int | None


class PeerCommands:
    """The command about peers. While the service runs, `reach` says which do not answer, and
    `names` returns the names of all skills.
    """

    def __init__(
        self,
        storage: Storage,
        peers: Sequence[Peer],
        reach: Reach | None = None,
        names: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        self._storage = storage
        self._peers = peers
        self._reach = reach
        self._names = names

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (PEERS.done_by(self._list),)

    async def _list(self, _asking: Asking, _params: NoParams) -> CommandResult:
        def op(database: Database) -> list[PeerUse]:
            return [rows.use_of(database, peer.name, peer.jid) for peer in self._peers]

        uses = await self._storage.read(op)
        counts = None
        if self._names is not None:
            counts = Counter(name.partition(".")[0] for name in self._names())
        lines = [self._line(*each, counts) for each in zip(self._peers, uses, strict=True)]
        text = "\n".join(map(_text, lines)) or "There are no peers: add a [[peer]] to agent.toml."
        return CommandResult(text, lines, only_read=True)

    def _line(self, peer: Peer, use: PeerUse, counts: Counter[str] | None) -> PeerLine:
        until = use.known_until
        is_known = until is not None and until > system.now().timestamp() * 1000
        answers: Literal["yes", "no", "unknown"] = "yes" if is_known else "unknown"
        if self._reach is not None and peer.name in self._reach.missing():
            answers = "no"
        return PeerLine(
            name=peer.name,
            address=peer.jid,
            uses=peer.skills,
            offers=peer.offers,
            answers=answers,
            skills=None if counts is None or until is None else counts[peer.name],
            known_until=None if until is None else _instant(until),
            open_calls=use.open_calls,
            usd=use.today.usd,
            day_usd=peer.day_usd,
            tokens=use.today.tokens,
            day_tokens=peer.day_tokens,
        )


def _instant(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


_ANSWERS: Final = {"yes": "answers", "no": "does not answer", "unknown": "not heard of lately"}


def _text(line: PeerLine) -> str:
    said = [_ANSWERS[line.answers], f"used: {', '.join(line.uses) or 'nothing'}"]
    if line.skills is not None:
        said[-1] += f" ({line.skills} skills, known until {line.known_until})"
    said.append(f"offered to it: {', '.join(line.offers) or 'nothing'}")
    said += [f"open calls: {line.open_calls}"] if line.open_calls else []
    if line.usd or line.day_usd is not None:
        limit = "" if line.day_usd is None else f" of {line.day_usd:g}"
        said.append(f"today: {line.usd:g}{limit} USD")
    if line.tokens or line.day_tokens is not None:
        limit = "" if line.day_tokens is None else f" of {line.day_tokens}"
        said.append(f"today: {line.tokens}{limit} tokens")
    return f"{line.name} ({line.address}): {'; '.join(said)}"
