"""Admins approve proposed personas by the digest of what they have read."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from component.app.schema import SCHEMA
from component.features.installed_skills.commands import InstalledError
from component.features.installed_skills.personas import ProposedPersonas, waiting_personas
from component.memory_directory.layout import Layout
from component.personas.packages import PersonaText, exported
from component.skill_directories.proposals import Proposal, ProposalFolder, persona_digest
from component.store import Storage
from tests.component.features.installed_skills.world import Events

pytestmark = pytest.mark.anyio

ADMIN, NAME = "admin@example.com", "persona:poet"
POET = PersonaText(id="poet", name="Poet", description="Rhymes.", identity="You rhyme.")


class World:
    """Proposals, packages and approvals; `again` restarts with what is on the disk."""

    def __init__(self, path: Path, storage: Storage) -> None:
        self.path = path
        self.storage = storage
        self.folder = ProposalFolder(path / "proposed")
        self.layout = Layout(path / "memory")
        self.events = Events()
        self.again()

    def again(self) -> None:
        self.personas = ProposedPersonas(self.folder, self.layout, self.storage, self.events)

    def propose(self, text: str, digest: str = "") -> str:
        """Keep a proposal; return the digest of its text."""
        record = Proposal(principal="juliet@example.com", digest=digest or persona_digest(text))
        self.folder.propose(NAME, {"persona.toml": text}, record)
        return persona_digest(text)

    @property
    def package(self) -> Path:
        return self.layout.approved_personas / "poet"

    async def states(self) -> dict[str, str]:
        return {one.name: one.state for one in await self.personas.list()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Storage.open(SCHEMA, tmp_path / "data") as storage:
        yield World(tmp_path, storage)


async def test_only_the_text_that_was_read_is_approved(world: World) -> None:
    before = world.propose(exported(POET))
    digest = world.propose(exported(POET) + "# changed\n")
    assert await world.states() == {NAME: "waiting"}
    assert waiting_personas(world.path / "proposed", world.path / "memory") == [
        "persona:poet (by juliet@example.com)"
    ]
    for given, trusted, why in (
        ("", False, "with the digest"),
        (digest, True, "always confined"),
        (before, False, "has changed"),
    ):
        with pytest.raises(InstalledError, match=why):
            await world.personas.approve(NAME, ADMIN, digest=given, trusted=trusted)
    assert not world.package.exists()
    shown = await world.personas.approve(NAME, ADMIN, digest=digest[:16])
    assert (shown.state, shown.description) == ("offered", "Rhymes.")
    assert (world.package / "identity.md").read_text() == "You rhyme."
    assert waiting_personas(world.path / "proposed", world.path / "memory") == []
    (event,) = world.events.events
    assert (event.outcome, event.subject, event.principal) == ("approved", NAME, ADMIN)


async def test_a_kill_after_the_approval_is_stored_loses_nothing(world: World) -> None:
    digest = world.propose(exported(POET))
    await world.personas.approve(NAME, ADMIN, digest=digest)
    for name in ("identity.md", "persona.toml"):
        (world.package / name).unlink()
    (world.package.parent / ".new-abc").mkdir()
    (world.package.parent / "stray").mkdir()
    world.again()
    await world.personas.reload(None)
    assert [one.name for one in world.package.parent.iterdir()] == ["poet"]
    assert (world.package / "identity.md").read_text() == "You rhyme."


async def test_what_changes_is_shown_and_revoking_takes_it_away(world: World) -> None:
    plain = msgspec.structs.replace(POET, skills=("time",))
    more = msgspec.structs.replace(POET, skills=("time", "echo"))
    await world.personas.approve(NAME, ADMIN, digest=world.propose(exported(plain)))
    world.propose(exported(more), digest="of other files")
    shown = await world.personas.show(NAME)
    assert (shown.state, shown.added, shown.removed) == ("changed", ("use the skill echo",), ())
    assert "WARNING: its files were changed after its tests." in shown.proposed
    with pytest.raises(InstalledError, match="revoke it first"):
        await world.personas.reject(NAME, ADMIN)
    assert (await world.personas.revoke(NAME, ADMIN)).state == "revoked"
    assert not world.package.exists()
    await world.personas.reject(NAME, ADMIN)
    for done in (world.personas.reject(NAME, ADMIN), world.personas.revoke(NAME, ADMIN)):
        with pytest.raises(InstalledError):
            await done
    assert world.folder.all() == {}


async def test_an_approved_persona_outlives_its_proposal(world: World) -> None:
    await world.personas.approve(NAME, ADMIN, digest=world.propose(exported(POET)))
    world.folder.remove(NAME)
    await world.personas.reload(None)
    shown = await world.personas.show(NAME)
    assert (shown.state, shown.reason) == ("offered", "its proposal is gone")
    assert await world.personas.knows(NAME)
    assert not await world.personas.knows("poet")
    assert not await world.personas.knows("persona:other")


async def test_the_persona_of_the_operator_counts(world: World) -> None:
    digest = world.propose(exported(POET))
    own = world.layout.personas / "poet"
    own.mkdir(parents=True)
    (own / "persona.toml").write_text("")
    with pytest.raises(InstalledError, match="has a persona of that id"):
        await world.personas.approve(NAME, ADMIN, digest=digest)
    (own / "persona.toml").unlink()
    await world.personas.approve(NAME, ADMIN, digest=digest)
    (own / "persona.toml").write_text("")
    assert await world.states() == {NAME: "failed"}


@pytest.mark.parametrize("text", ["", "[persona", '[persona]\nid = "other"\n', "\udcff"])
async def test_a_damaged_proposal_is_not_approved(world: World, text: str) -> None:
    world.propose(exported(POET))
    (world.folder.path(NAME) / "persona.toml").write_bytes(text.encode(errors="surrogateescape"))
    assert await world.states() == {NAME: "failed"}
    with pytest.raises(InstalledError, match="cannot be approved"):
        await world.personas.approve(NAME, ADMIN, digest="0" * 8)
