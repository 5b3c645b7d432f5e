"""Personas that people create: who can use them, and their limits."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from component.config.agents import AgentEntry, PersonaRestriction
from component.config.agents import Personas as Configured
from component.conversations.directories import erase
from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import Texts
from component.personas.own_personas import OwnPersonas
from component.personas.packages import Persona, PersonaError, PersonaText, tier_of
from component.personas.personas import Personas
from component.personas.workspace import Character, Workspace
from tests.component.audit.book import Book
from tests.profiles import examples
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE, BOB = JID.parse("alice@example.com"), JID.parse("bob@example.org")
AGENT = "assistant"

HERS = SessionKey(AGENT, ALICE)


class Shelf:
    """The personas in one directory."""

    def __init__(self, path: Path, **more: object) -> None:
        self.root = files.open_root(path)
        self.layout = Layout(self.root)
        texts = Texts(self.root)
        configured = Configured.model_validate({"allow_user_personas": True} | more)
        self.book = Book()
        self.personas = Personas(self.layout, texts, configured)
        self.own = OwnPersonas(self.layout, self.personas, configured, self.book)
        self.workspace = Workspace(self.layout, texts)

    def of_all(self, id_: str, **texts: str) -> None:
        folder = self.layout.personas / id_
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "persona.toml").write_text(f'[persona]\nid = "{id_}"\n')
        for kind, text in texts.items():
            (folder / f"{kind}.md").write_text(text)

    def folder(self, who: JID, id_: str = "") -> Path:
        return self.layout.own_personas(SessionKey(AGENT, who)) / id_

    async def told(self, who: JID, declared: AgentEntry | None = None) -> Character:
        """Return the character of an agent with the persona of a person."""
        active = await self.personas.active(SessionKey(AGENT, who))
        folder = None if active is None else active.folder
        return await self.workspace.read(SessionKey(AGENT, who), persona=folder, declared=declared)

    async def ids(self, who: JID, agent: str = AGENT) -> list[tuple[str, bool]]:
        return [(each.id, each.own) for each in await self.personas.list(SessionKey(agent, who))]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "memory")


def restricted(jid: str, *allowed: str) -> dict[str, object]:
    return {"restrictions": [PersonaRestriction(jid=jid, allowed=allowed)]}


def buddy(id_: str = "buddy", text: str = "You are a tutor.", **more: object) -> PersonaText:
    return PersonaText(id=id_, name=id_.title(), identity=text, **more)  # type: ignore[arg-type]


async def test_an_own_persona_is_a_package_in_the_directory_of_the_conversation(
    shelf: Shelf,
) -> None:
    written = buddy(personality="Kind.", instructions="Ask.", icon="B", description="Teaches")
    await shelf.own.save(HERS, written)
    folder = shelf.root / "alice@example.com" / "personas" / "buddy"
    assert sorted(each.name for each in folder.iterdir()) == [
        "identity.md",
        "instructions.md",
        "persona.toml",
        "personality.md",
    ]
    assert (folder / "identity.md").read_text() == "You are a tutor."
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    assert await shelf.own.get(HERS, "buddy") == written
    (row,) = await shelf.personas.list(HERS)
    assert (row.id, row.name, row.icon, row.own) == ("buddy", "Buddy", "B", True)
    assert [(each.outcome, each.subject) for each in shelf.book.events] == [("stored", "buddy")]


async def test_an_own_persona_is_chosen_by_id_or_name(shelf: Shelf) -> None:
    shelf.of_all("mentor")
    await shelf.own.save(HERS, buddy())
    assert await shelf.ids(ALICE) == [("buddy", True), ("mentor", False)]
    await shelf.personas.choose(HERS, "BUDDY")
    assert (await shelf.told(ALICE)).identity == "You are a tutor."
    await shelf.personas.choose(HERS, "mentor")
    assert (await shelf.told(ALICE)).identity == ""


async def test_the_precedence_of_texts_with_an_own_persona(shelf: Shelf) -> None:
    declared = AgentEntry(name=AGENT, identity="declared")
    shelf.of_all("buddy", identity="of all")  # comes later than the person's own, for all it knows
    await _older(shelf, "of hers")
    await shelf.personas.choose(HERS, "buddy")
    override = shelf.root / "alice@example.com" / "identity.md"
    override.write_text("for her")
    assert (await shelf.told(ALICE, declared)).identity == "for her"
    override.unlink()
    assert (await shelf.told(ALICE, declared)).identity == "of hers"
    await shelf.own.remove(HERS, "buddy")
    assert (await shelf.told(ALICE, declared)).identity == "of all"
    await shelf.personas.choose(HERS, None)
    assert (await shelf.told(ALICE, declared)).identity == "declared"


async def _older(shelf: Shelf, text: str) -> None:
    """Create an own persona of Alice as if the one for all had been added later."""
    aside = shelf.layout.personas.with_name("aside")
    shelf.layout.personas.rename(aside)
    await shelf.own.save(HERS, buddy(text=text))
    aside.rename(shelf.layout.personas)


async def test_an_own_persona_takes_precedence_over_one_with_the_same_id(shelf: Shelf) -> None:
    shelf.of_all("buddy", identity="of all")
    await _older(shelf, "of hers")
    assert await shelf.ids(ALICE) == [("buddy", True)]
    assert await shelf.ids(BOB) == [("buddy", False)]
    await shelf.personas.choose(HERS, "buddy")
    assert (await shelf.told(ALICE)).identity == "of hers"
    await shelf.own.save(HERS, buddy(text="still of hers"))
    assert (await shelf.told(ALICE)).identity == "still of hers"


async def test_for_restricted_people_an_id_means_the_persona_of_the_operator(
    tmp_path: Path,
) -> None:
    free = Shelf(tmp_path)
    free.of_all("buddy", identity="of all")
    await _older(free, "of hers")
    await free.personas.choose(HERS, "buddy")
    shelf = Shelf(tmp_path, **restricted("alice@example.com", "buddy"))
    assert await shelf.ids(ALICE) == [("buddy", False)]
    assert (await shelf.told(ALICE)).identity == "of all"


async def test_restrictions_apply_to_own_personas(tmp_path: Path) -> None:
    await Shelf(tmp_path).own.save(HERS, buddy())
    await Shelf(tmp_path).personas.choose(HERS, "buddy")
    shelf = Shelf(tmp_path, **restricted("*@example.com", "code-*"))
    for make in (
        shelf.own.may_make(HERS, "poet"),
        shelf.own.save(HERS, buddy("x")),
    ):
        with pytest.raises(PersonaError, match="You may not have a persona"):
            await make
    await shelf.own.save(HERS, buddy("code-poet"))
    assert await shelf.ids(ALICE) == [("code-poet", True)]
    with pytest.raises(PersonaError, match="no persona 'buddy'"):
        await shelf.personas.choose(HERS, "buddy")
    with capture_logs():
        assert await shelf.personas.active(HERS) is None


async def test_the_id_of_a_persona_for_all_cannot_be_used(shelf: Shelf) -> None:
    shelf.of_all("mentor")
    with pytest.raises(PersonaError, match="for all already"):
        await shelf.own.may_make(HERS, "mentor")
    with pytest.raises(PersonaError, match="for all already"):
        await shelf.own.save(HERS, buddy("mentor"))
    assert not shelf.folder(ALICE).exists()


async def test_the_number_of_own_personas_is_limited(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, max_user_personas=2)
    await shelf.own.save(HERS, buddy("one"))
    await shelf.own.save(HERS, buddy("two"))
    for attempt in (
        shelf.own.may_make(HERS, "three"),
        shelf.own.save(HERS, buddy("three")),
    ):
        with pytest.raises(PersonaError, match="2 are the most"):
            await attempt
    await shelf.own.save(HERS, buddy("two", "changed"))
    await shelf.own.save(SessionKey(AGENT, BOB), buddy("three"))
    assert await shelf.own.remove(HERS, "one")
    await shelf.own.save(HERS, buddy("three"))
    assert await shelf.ids(ALICE) == [("three", True), ("two", True)]


async def test_a_removed_persona_cannot_be_used(shelf: Shelf) -> None:
    await shelf.own.save(HERS, buddy())
    assert await shelf.own.remove(HERS, "buddy")
    assert not await shelf.own.remove(HERS, "buddy")
    assert not await shelf.own.remove(HERS, "../personas")
    assert list(shelf.folder(ALICE).iterdir()) == []
    with pytest.raises(PersonaError, match="You have no persona 'buddy'"):
        await shelf.own.get(HERS, "buddy")
    assert [each.outcome for each in shelf.book.events] == ["stored", "erased"]


async def test_own_personas_are_ignored_unless_the_settings_allow_them(tmp_path: Path) -> None:
    await Shelf(tmp_path).own.save(HERS, buddy())
    await Shelf(tmp_path).personas.choose(HERS, "buddy")
    shelf = Shelf(tmp_path, allow_user_personas=False)
    assert Configured().allow_user_personas is False
    assert await shelf.ids(ALICE) == []
    with capture_logs():
        assert await shelf.personas.active(HERS) is None
    for attempt in (
        shelf.own.may_make(HERS, "x"),
        shelf.own.save(HERS, buddy()),
        shelf.own.get(HERS, "buddy"),
        shelf.own.remove(HERS, "buddy"),
    ):
        with pytest.raises(PersonaError, match="the operator has not allowed it"):
            await attempt


async def test_sharing_has_its_own_setting(tmp_path: Path) -> None:
    with pytest.raises(PersonaError, match="not exported or imported"):
        Shelf(tmp_path).own.may_share()
    Shelf(tmp_path, allow_sharing=True).own.may_share()
    with pytest.raises(PersonaError, match="Nobody makes"):
        Shelf(tmp_path, allow_sharing=True, allow_user_personas=False).own.may_share()


async def test_an_own_persona_is_never_the_default(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, default="buddy")
    await shelf.own.save(HERS, buddy())
    with capture_logs():
        assert await shelf.personas.active(HERS) is None
    shelf.of_all("buddy", identity="of all")
    assert (await shelf.told(ALICE)).identity == "of all"


async def test_rules_of_the_operator_follow_those_of_the_person(shelf: Shelf) -> None:
    (shelf.root / "instructions.md").write_text("Never tell a price.")
    await shelf.own.save(HERS, buddy(instructions="Tell all prices."))
    await shelf.personas.choose(HERS, "buddy")
    told = await shelf.told(ALICE)
    assert told.instructions == "Never tell a price."
    first, *_, wish = told.identity.splitlines()
    assert (first, wish) == ("You are a tutor.", "Tell all prices.")
    assert "within all that is said below" in told.identity
    assert "alice@example.com/personas/buddy/instructions.md" in told.sources
    await shelf.own.save(HERS, buddy(personality="Kind.", instructions="Tell all prices."))
    told = await shelf.told(ALICE)
    assert told.identity == "You are a tutor."
    assert told.personality.startswith("Kind.\n")
    assert told.personality.endswith("Tell all prices.")
    (shelf.root / "alice@example.com" / "instructions.md").write_text("For her alone.")
    told = await shelf.told(ALICE)
    assert (told.personality, told.instructions) == ("Kind.", "For her alone.")


@pytest.mark.parametrize(
    ("tier", "of_agent", "own_model", "becomes"),
    [
        ("light", "standard", False, "light"),
        ("heavy", "standard", False, None),
        ("vision", "standard", False, None),
        ("standard", "heavy", False, "standard"),
        ("light", "vision", False, None),
        ("light", "standard", True, None),
        (None, "heavy", False, None),
    ],
)
def test_an_own_persona_can_only_set_a_lighter_tier(
    tier: str | None, of_agent: str, own_model: bool, becomes: str | None
) -> None:
    mine = Persona(id="x", name="X", folder=Path(), tier=tier, own=True)  # type: ignore[arg-type]
    assert tier_of(mine, of_agent, own_model=own_model) == becomes  # type: ignore[arg-type]
    of_all = Persona(id="x", name="X", folder=Path(), tier=tier)  # type: ignore[arg-type]
    assert tier_of(of_all, of_agent, own_model=own_model) == tier  # type: ignore[arg-type]


# -- the disk --------------------------------------------------------------------------------------


async def test_a_link_instead_of_a_persona_is_not_followed(shelf: Shelf) -> None:
    await shelf.own.save(SessionKey(AGENT, BOB), buddy(text="of Bob"))
    shelf.folder(ALICE).mkdir(parents=True)
    shelf.folder(ALICE, "buddy").symlink_to(shelf.folder(BOB, "buddy"))
    with capture_logs() as logs:
        assert await shelf.ids(ALICE) == []
        assert "symbolic link" in logs[0]["why"]
    for attempt in (
        shelf.own.get(HERS, "buddy"),
        shelf.own.save(HERS, buddy()),
        shelf.own.remove(HERS, "buddy"),
    ):
        with pytest.raises(MemoryStoreError, match="symbolic link"):
            await attempt
    assert (await shelf.own.get(SessionKey(AGENT, BOB), "buddy")).identity == "of Bob"


async def test_a_text_that_is_a_link_is_not_read(shelf: Shelf) -> None:
    await shelf.own.save(HERS, buddy())
    await shelf.personas.choose(HERS, "buddy")
    path = shelf.folder(ALICE, "buddy") / "identity.md"
    path.unlink()
    (shelf.root / "identity.md").write_text("of all")
    path.symlink_to(shelf.root / "identity.md")
    with pytest.raises(MemoryStoreError, match="symbolic link"):
        await shelf.told(ALICE)
    with pytest.raises(MemoryStoreError, match="symbolic link"):
        await shelf.own.get(HERS, "buddy")


async def test_a_manifest_that_is_a_link_is_not_followed(shelf: Shelf) -> None:
    await shelf.own.save(SessionKey(AGENT, BOB), buddy(text="of Bob"))
    shelf.folder(ALICE, "buddy").mkdir(parents=True)
    theirs = shelf.folder(BOB, "buddy") / "persona.toml"
    (shelf.folder(ALICE, "buddy") / "persona.toml").symlink_to(theirs)
    with capture_logs() as logs:
        assert await shelf.ids(ALICE) == []
        assert "symbolic link" in logs[0]["why"]


async def test_an_interrupted_removal_leaves_no_persona(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_folder: Path) -> None:
        raise KeyboardInterrupt

    await shelf.own.save(HERS, buddy())
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            await shelf.own.remove(HERS, "buddy")
    assert await shelf.ids(ALICE) == []
    assert not await shelf.own.has(HERS, "buddy")


async def test_an_interrupted_save_leaves_no_persona(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = files.replace

    def killed(path: Path, data: bytes) -> None:
        if path.name == "persona.toml":
            raise KeyboardInterrupt
        replace(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(files, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            await shelf.own.save(HERS, buddy())
    assert await shelf.ids(ALICE) == []
    assert not await shelf.own.has(HERS, "buddy")
    await shelf.own.save(HERS, buddy())
    assert await shelf.ids(ALICE) == [("buddy", True)]


async def test_a_damaged_own_persona_can_be_removed(shelf: Shelf) -> None:
    await shelf.own.save(HERS, buddy())
    (shelf.folder(ALICE, "buddy") / "persona.toml").write_text("[persona")
    with capture_logs():
        assert await shelf.ids(ALICE) == []
    with pytest.raises(PersonaError, match="'buddy' is damaged"):
        await shelf.own.get(HERS, "buddy")
    assert await shelf.own.has(HERS, "buddy")
    assert await shelf.own.remove(HERS, "buddy")


async def test_forget_keeps_own_personas(shelf: Shelf) -> None:
    await shelf.own.save(HERS, buddy())
    await shelf.personas.choose(HERS, "buddy")
    erase(shelf.root, shelf.layout.folder(HERS))
    assert (await shelf.told(ALICE)).identity == "You are a tutor."


# -- whose they are --------------------------------------------------------------------------------

PEOPLE = [ALICE, BOB, JID.parse("alice@example.com.evil.example"), JID.parse("personas")]
AGENTS = [AGENT, "researcher"]
_CONVERSATIONS = st.tuples(st.sampled_from(AGENTS), st.sampled_from(PEOPLE))
_IDS = st.sampled_from(["one", "two"])
_DEEDS = st.lists(
    st.tuples(st.sampled_from(["save", "remove", "choose", "reset"]), _CONVERSATIONS, _IDS),
    max_size=12,
)


@settings(examples(10, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=_DEEDS)
async def test_an_own_persona_is_visible_only_to_its_person(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, tuple[str, JID], str]]
) -> None:
    shelf = Shelf(tmp_path_factory.mktemp("shelf"))
    made: set[tuple[str, JID, str]] = set()
    with capture_logs():
        for deed, (agent, who), id_ in deeds:
            if deed == "save":
                text = f"of {who} with {agent}"
                await shelf.own.save(SessionKey(agent, who), buddy(id_, text, instructions=text))
                made.add((agent, who, id_))
            elif deed == "remove":
                assert await shelf.own.remove(SessionKey(agent, who), id_) is (
                    (agent, who, id_) in made
                )
                made.discard((agent, who, id_))
            elif deed == "reset" or (agent, who, id_) in made:
                chosen = None if deed == "reset" else id_
                await shelf.personas.choose(SessionKey(agent, who), chosen)
            else:
                with pytest.raises(PersonaError):
                    await shelf.personas.choose(SessionKey(agent, who), id_)
            for of in AGENTS:
                for one in PEOPLE:
                    listed = {each.id for each in await shelf.personas.list(SessionKey(of, one))}
                    assert listed == {i for a, w, i in made if (a, w) == (of, one)}
                    active = await shelf.personas.active(SessionKey(of, one))
                    told = await shelf.workspace.read(
                        SessionKey(of, one), persona=None if active is None else active.folder
                    )
                    said = {line for line in told.identity.splitlines() if line.startswith("of ")}
                    assert said <= {f"of {one} with {of}"}
