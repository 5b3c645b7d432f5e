"""Agents elsewhere: their skills here, and calls of them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from anyio.lowlevel import checkpoint

from component.budget.protocol import Amount
from component.commands import AnyCommand
from component.features.feature import Feature, Opened
from component.features.peers.agent_keys import AgentKeys
from component.features.peers.calls import PeerCalls
from component.features.peers.checks import check_offers
from component.features.peers.commands import GrantCommands
from component.features.peers.grants import PeerGrants, agents_of
from component.features.peers.handlers import GrantHandler
from component.features.peers.node import KeysNode
from component.features.peers.offers import PeerSkills
from component.features.peers.peer_list import PeerCommands
from component.features.peers.receipts import Receipts
from component.features.peers.rows import TOPIC
from component.features.peers.shares import Shares
from component.features.peers.verification import GrantVerifier
from component.kernel.check import Check
from component.kernel.environment import Catalog
from component.kernel.kernel import Kernel
from component.skills import Registry, Skill
from component.store import Storage
from component.tasks.protocol import Notice
from xep.fluux_agent.delegation import NAMESPACE as DELEGATION

if TYPE_CHECKING:
    from component.features.peers.conformance_fixtures import ConformanceFixtures


class PeersFeature(Feature):
    """The peers of the settings."""

    reloads: ClassVar = ("peer",)
    _fixtures: "ConformanceFixtures | None" = None
    _skills: PeerSkills | None = None
    _calls: PeerCalls
    _catalog: Catalog

    def skills(self) -> Iterator[Skill]:
        """Yield the skill that calls several peers, if any can be called, and the skills for the
        conformance kit, if they are offered.
        """
        if any(peer.skills for peer in self.settings.peer):
            from component.features.peers.skills import peers_ask_skill  # noqa: PLC0415 - rarely used

            yield peers_ask_skill(lambda: self._catalog)
        if self.settings.conformance.enabled:
            from component.features.peers.conformance_fixtures import (  # noqa: PLC0415 - rarely used
                ConformanceFixtures,
            )

            self._fixtures = ConformanceFixtures(self.settings.peer, lambda: self._calls)
            yield from self._fixtures.skills()

    def reopen(self, kernel: Kernel, before: Self) -> Opened:
        """Do the same as `open`; what is known of peers that have not changed is used again."""
        return self._open(kernel, before._skills)

    def open(self, kernel: Kernel) -> Opened:
        """Make what sends and follows calls, and the source of their skills."""
        return self._open(kernel)

    def _open(self, kernel: Kernel, before: PeerSkills | None = None) -> Opened:
        self._catalog = kernel.environment.catalog
        keys, agents = AgentKeys(kernel), agents_of(self.settings)
        grants = PeerGrants(kernel, keys, self.settings.peer)
        shares = self._shares = Shares(kernel)
        receipts = Receipts(kernel, keys, agents, shares)
        verifier = GrantVerifier(kernel, keys, shares, self.settings.peer)
        kernel.tasks.gate.check_grants = verifier.check
        kernel.tasks.service.sign_receipts(receipts.make)
        calls = self._calls = PeerCalls(kernel, grants, receipts)
        skills = self._skills = PeerSkills(kernel, self.settings.peer, calls, before)
        calls.reach.outdated = skills.outdated
        peers, names = self.settings.peer, kernel.environment.catalog.registry.names

        def connected() -> None:
            calls.connected()
            skills.connected()

        def disconnected() -> None:
            calls.reach.disconnected()
            skills.disconnected()

        return Opened(
            handlers=(calls, GrantHandler(grants)),
            nodes=(KeysNode(kernel.storage, agents),),
            commands=(
                *GrantCommands(kernel.storage, agents, calls.grants_changed).commands(),
                *PeerCommands(kernel.storage, peers, calls.reach, names).commands(),
            ),
            shared_changes={TOPIC: calls.nudged, "peer grants": calls.grants_changed},
            sources=(skills,),
            loops=(calls.run, receipts.run, shares.run),
            spent=self._spent,
            warnings=lambda: (*calls.reach.warnings(), *skills.warnings()),
            disco_features=lambda: (DELEGATION,),
            connected=connected,
            disconnected=disconnected,
            pubsub_listener=skills,
            task_changed=self._task_changed,
        )

    async def _spent(self, task: str) -> Amount:
        spent = await self._calls.spent(task)
        return spent if self._fixtures is None else spent.plus(await self._fixtures.spent(task))

    def _task_changed(self, notice: Notice) -> None:
        self._calls.task_changed(notice)
        if notice.final:
            self._shares.wake()
            if self._fixtures is not None:
                self._fixtures.ended(notice.task.id)

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Return the check of what peers are offered."""
        await checkpoint()
        return tuple(check_offers(self.settings.peer, registry))

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the commands about grants and peers."""
        return (
            *GrantCommands(storage, agents_of(self.settings)).commands(),
            *PeerCommands(storage, self.settings.peer).commands(),
        )


FEATURE = PeersFeature
