"""The skills that peers offer: known from the last time at once, and fetched anew when they change.

What a peer has offered last is a row, so its skills are there before the connection is.
"""

from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus

from component.config.peers import Peer
from component.features.peers import rows
from component.features.peers.calls import PeerCalls
from component.features.peers.remote import skill_of
from component.kernel.kernel import Kernel
from component.policy.globs import pattern
from component.skills.errors import DeclarationError, printable
from component.skills.skill import Skill
from component.skills.sources import Offer
from component.store.errors import StorageError
from component.store.outages import log_failure
from xep.fluux_agent.skills import SkillDescription, SkillsQuery
from xep.jid import JID
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_MOST_PAGES: Final = 200
_LEAST_TTL_S: Final = 60
_LONGEST_TTL_S: Final = 86_400
_FIRST_WAIT_S: Final = 5.0
_LONGEST_WAIT_S: Final = 600.0
_LONGEST_NAME: Final = 100


class PeerSkills:
    """The source of the skills of one peer."""

    def __init__(self, peer: Peer, kernel: Kernel, calls: PeerCalls) -> None:
        self.name = f"peer.{peer.name}"
        self._peer = peer
        self._kernel = kernel
        self._calls = calls
        self._address = JID.parse(peer.jid)
        self._changed = anyio.Event()
        self._skills: dict[str, tuple[SkillDescription, Skill]] = {}

    def changed(self) -> None:
        """The peer offers other skills now."""
        self._changed.set()

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skills of the peer until cancelled."""
        storage, peer = self._kernel.storage, self._peer
        known = await storage.read(lambda db: rows.offered(db, peer.name, peer.jid))
        if known is not None:
            offer(self._made(known.query))
        task_status.started()
        wait = _FIRST_WAIT_S
        while True:
            await self._calls.reach.is_connected.wait()
            self._changed = anyio.Event()
            try:
                answer = await self._fetch("" if known is None else known.version)
            except (StanzaError, StorageError) as error:
                log_failure(_log, "a peer does not say what it offers", error, peer=peer.name)
                delay, wait = wait, min(wait * 2, _LONGEST_WAIT_S)
            else:
                wait = _FIRST_WAIT_S
                delay = float(min(max(answer.ttl or 0, _LEAST_TTL_S), _LONGEST_TTL_S))
                if not answer.unchanged:
                    ttl = round(delay)
                    known = await storage.write(
                        lambda db: rows.offer(db, peer.name, peer.jid, answer, ttl)  # noqa: B023 - runs at once
                    )
                    offer(self._made(answer))
                    _log.info("a peer offers skills", peer=peer.name, count=len(self._skills))
            with anyio.move_on_after(delay):
                await self._changed.wait()

    async def _fetch(self, version: str) -> SkillsQuery:
        """Ask for all skills with their schemas, unless this version is still right."""
        found: list[SkillDescription] = []
        after: str | None = None
        answer = SkillsQuery(unchanged=True)
        for _ in range(_MOST_PAGES):
            query = SkillsQuery(
                version=version or None, schemas=True, page=ResultSet(max=50, after=after)
            )
            answer = await self._kernel.stream.get(
                self._address, query, SkillsQuery, self._sender()
            )
            if answer.unchanged or not answer.skills:
                break
            found += answer.skills
            version = ""
            page = answer.page
            after = None if page is None else page.last
            if page is None or after is None or len(found) == page.count:
                break
        if answer.unchanged:
            return answer
        return SkillsQuery(version=answer.version, ttl=answer.ttl, skills=tuple(found))

    def _sender(self) -> JID:
        return self._kernel.stream.addresses.address_of("assistant")

    def _made(self, answer: SkillsQuery) -> list[Skill]:
        wanted = pattern(self._peer.skills)
        made: dict[str, tuple[SkillDescription, Skill]] = {}
        for said in answer.skills:
            if not wanted.fullmatch(said.name) or said.name in made:
                continue
            before = self._skills.get(said.name)
            if before is not None and before[0] == said:
                made[said.name] = before
                continue
            try:
                invoke = self._calls.invoke_of(self._peer, said.name)
                made[said.name] = said, skill_of(self._peer, said, invoke)
            except (DeclarationError, ValueError, RecursionError) as error:
                _log.warning(
                    "a skill of a peer cannot be offered",
                    peer=self._peer.name,
                    skill=printable(said.name, _LONGEST_NAME),
                    reason=str(error),
                )
        self._skills = made
        return [skill for _, skill in made.values()]
