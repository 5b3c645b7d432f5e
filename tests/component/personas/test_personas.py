"""Packages of personas, restrictions, and choices."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from component.config.agents import PersonaRestriction
from component.config.agents import Personas as Configured
from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import Texts
from component.personas.packages import PersonaError, parse_manifest
from component.personas.personas import Personas
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE = JID.parse("alice@example.com")

HERS = SessionKey("assistant", ALICE)
BOB = JID.parse("bob@example.org")
ROOM = JID.parse("dev@conference.example.com")

MENTOR = """\
[persona]
id = "coding-mentor"
name = "Coding Mentor"
description = "Teaches"
icon = "\U0001f468"
author = "of the future"

[persona.defaults]
tier = "heavy"
skills = ["web_*", "clock"]

[persona.restrictions]
allowed_jids = ["*@example.com", "Dev@conference.example.com"]
max_tokens_per_message = 4096
"""


class Shelf:
    """Packages in a temporary directory."""

    def __init__(self, path: Path) -> None:
        self.root = files.open_root(path)
        self.layout = Layout(self.root)

    def put(self, name: str, manifest: str | None = None) -> Path:
        folder = self.layout.personas / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "persona.toml").write_text(
            f'[persona]\nid = "{name}"\n' if manifest is None else manifest, encoding="utf-8"
        )
        return folder

    def open(
        self,
        default: str = "",
        defaults: dict[str, str] | None = None,
        **restrictions: tuple[str, list[str]],
    ) -> Personas:
        entries = [
            PersonaRestriction(jid=jid, allowed=tuple(allowed))
            for jid, allowed in restrictions.values()
        ]
        configured = Configured(default=default, restrictions=tuple(entries))
        return Personas(self.layout, Texts(self.root), configured, defaults=defaults)

    def choice(self, who: JID, agent: str = "assistant") -> Path:
        return self.layout.folder(SessionKey(agent, who)) / "active_persona.txt"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "memory")


async def ids(personas: Personas, who: JID) -> list[str]:
    return [each.id for each in await personas.list(SessionKey("assistant", who))]


async def active(personas: Personas, who: JID, agent: str = "assistant") -> str | None:
    persona = await personas.active(SessionKey(agent, who))
    return None if persona is None else persona.id


async def test_a_package_has_the_fields_of_fluux_agent(shelf: Shelf) -> None:
    folder = shelf.put("coding-mentor", MENTOR)
    (mentor,) = await shelf.open().list(HERS)
    assert mentor.folder == folder
    assert (mentor.name, mentor.description, mentor.icon) == (
        "Coding Mentor",
        "Teaches",
        "\U0001f468",
    )
    assert (mentor.tier, mentor.skills) == ("heavy", ("web_*", "clock"))
    assert mentor.max_tokens_per_message == 4096


async def test_a_package_with_only_an_id_has_no_restrictions(shelf: Shelf) -> None:
    shelf.put("plain")
    (plain,) = await shelf.open().list(SessionKey("assistant", BOB))
    assert (plain.name, plain.tier, plain.skills) == ("plain", None, None)
    assert plain.max_tokens_per_message is None


async def test_without_packages_the_list_is_empty(shelf: Shelf) -> None:
    personas = shelf.open()
    assert await ids(personas, ALICE) == []
    assert await active(personas, ALICE) is None
    with pytest.raises(PersonaError, match=r"^There is no persona 'x' for you\.$"):
        await personas.choose(HERS, "x")


async def test_a_choice_is_stored_for_one_person_and_one_agent(shelf: Shelf) -> None:
    shelf.put("one")
    shelf.put("two", '[persona]\nid = "two"\nname = "The Second"\n')
    personas = shelf.open()
    chosen = await personas.choose(HERS, " The SECOND ")
    assert chosen is not None
    assert chosen.id == "two"
    assert shelf.choice(ALICE).read_text() == "two\n"
    for each in (personas, shelf.open()):
        assert await active(each, ALICE) == "two"
        assert await active(each, BOB) is None
        assert await active(each, ALICE, "helper") is None
        assert await active(each, ALICE, "assistant/1") is None
    assert await personas.choose(HERS, None) is None
    assert await active(personas, ALICE) is None
    assert not shelf.choice(ALICE).exists()
    assert await personas.choose(SessionKey("assistant", BOB), None) is None


async def test_the_default_applies_to_assistant_without_a_choice(shelf: Shelf) -> None:
    shelf.put("one")
    shelf.put("two")
    personas = shelf.open(default="one")
    assert await active(personas, ALICE) == "one"
    assert await active(personas, ALICE, "helper") is None
    assert await active(personas, ALICE, "assistant/1") is None
    await personas.choose(HERS, "two")
    assert await active(personas, ALICE) == "two"
    back = await personas.choose(HERS, None)
    assert back is not None
    assert back.id == "one"


async def test_a_declared_agent_can_have_a_default_persona(shelf: Shelf) -> None:
    for name in ("one", "two", "three"):
        shelf.put(name)
    personas = shelf.open(default="one", defaults={"helper": "two", "lost": "nowhere"})
    assert await active(personas, ALICE) == "one"
    assert await active(personas, ALICE, "helper") == "two"
    assert await active(personas, ALICE, "helper/1") is None
    assert await active(personas, ALICE, "lost") is None
    await personas.choose(SessionKey("helper", ALICE), "three")
    assert await active(personas, ALICE, "helper") == "three"
    assert await active(personas, BOB, "helper") == "two"
    personas = shelf.open(default="one", defaults={"assistant": "three"})
    assert await active(personas, BOB) == "three"


async def test_a_package_can_restrict_who_may_choose_it(shelf: Shelf) -> None:
    shelf.put("coding-mentor", MENTOR)
    personas = shelf.open()
    assert await ids(personas, ALICE) == ["coding-mentor"]
    assert await ids(personas, ROOM) == ["coding-mentor"]
    assert await ids(personas, BOB) == []
    with pytest.raises(PersonaError, match=r"^There is no persona 'coding-mentor' for you\.$"):
        await personas.choose(SessionKey("assistant", BOB), "coding-mentor")


async def test_the_first_restriction_that_matches_a_person_applies(shelf: Shelf) -> None:
    for each in ("code-review", "code-[1]", "support"):
        shelf.put(each, None if "[" not in each else "")
    personas = shelf.open(
        room=("dev@conference.example.com", ["code-*"]),
        admin=("alice@example.com", ["*"]),
        none=("*@example.com", []),
        others=("*", ["support"]),
    )
    assert await ids(personas, ROOM) == ["code-review"]
    assert await ids(personas, ALICE) == ["code-review", "support"]
    assert await ids(personas, JID.parse("carol@example.com")) == []
    assert await ids(personas, BOB) == ["support"]


async def test_a_choice_is_used_only_while_it_is_allowed_and_exists(
    shelf: Shelf,
) -> None:
    shelf.put("one")
    folder = shelf.put("two")
    personas = shelf.open(default="one")
    await personas.choose(HERS, "two")
    with capture_logs() as logs:
        restricted = shelf.open(default="one", alice=("alice@example.com", ["one"]))
        assert await active(restricted, ALICE) == "one"
        (folder / "persona.toml").unlink()
        assert await active(personas, ALICE) == "one"
        assert await active(personas, ALICE) == "one"
    assert [each["event"] for each in logs] == [
        "a persona that was chosen is not allowed",
        "a persona that was chosen is not there",
    ]


@pytest.mark.parametrize(
    "written", ["../one", "one/../one", "..", "", "\0", "ONE", "one two", "x" * 300]
)
async def test_an_invalid_choice_is_ignored(shelf: Shelf, written: str) -> None:
    shelf.put("one")
    shelf.choice(ALICE).parent.mkdir()
    shelf.choice(ALICE).write_text(written)
    personas = shelf.open()
    assert await active(personas, ALICE) is None
    with pytest.raises(PersonaError, match=r"There are: one\.$"):
        await personas.choose(HERS, written if written != "ONE" else "../one")


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ("[persona", "Expected"),
        ('[persona]\nid = "bad"\nname = "\\u0000"', "control characters"),
        ("", "missing required field `persona`"),
        ("[persona]", "missing required field `id`"),
        ('[persona]\nid = "other"', "Name them alike"),
        ('[persona]\nid = "Bad Id"', "not made of small letters"),
        (
            '[persona]\nid = "bad"\n[persona.defaults]\ntier = "huge"',
            r"\$\.persona\.defaults\.tier",
        ),
        (
            '[persona]\nid = "bad"\n[persona.restrictions]\nallowed_jid = ["a@b"]',
            (
                r"^\[persona\.restrictions\] has 'allowed_jid', which is not known; its keys are"
                r" capabilities, read_only, max_tokens_per_message, max_iterations, allowed_jids\.$"
            ),
        ),
        (
            '[persona]\nid = "bad"\n[persona.restrictions]\nallowed_jids = ["a b"]',
            "An entry of allowed_jids must be an address",
        ),
        (
            '[persona]\nid = "bad"\n[persona.restrictions]\nmax_tokens_per_message = 0',
            "max_tokens_per_message",
        ),
    ],
)
async def test_a_damaged_package_is_omitted_with_one_warning(
    shelf: Shelf, manifest: str, why: str
) -> None:
    shelf.put("good")
    shelf.put("bad", manifest)
    personas = shelf.open()
    with capture_logs() as logs:
        for _ in range(2):
            assert await ids(personas, ALICE) == ["good"]
    (warning,) = logs
    assert warning["file"].endswith("personas/bad/persona.toml")
    assert re.search(why, warning["why"])


async def test_a_corrected_package_can_be_chosen_immediately(shelf: Shelf) -> None:
    shelf.put("one", "[persona")
    personas = shelf.open()
    assert await ids(personas, ALICE) == []
    shelf.put("one")
    assert await ids(personas, ALICE) == ["one"]


async def test_a_package_outside_of_the_root_is_ignored(shelf: Shelf, tmp_path: Path) -> None:
    shelf.put("one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "persona.toml").write_text('[persona]\nid = "two"\n')
    (shelf.layout.personas / "two").symlink_to(tmp_path / "two")
    assert await ids(shelf.open(), ALICE) == ["one"]


async def test_a_person_whose_directory_is_a_link_cannot_choose(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.put("one")
    shelf.layout.folder(HERS).symlink_to(tmp_path)
    personas = shelf.open()
    with pytest.raises(MemoryStoreError, match="symbolic link"):
        await personas.active(HERS)
    with pytest.raises(MemoryStoreError, match="symbolic link"):
        await personas.choose(HERS, "one")
    assert not (tmp_path / "active_persona.txt").exists()


@given(st.text(max_size=60) | st.text('[]persona.id="x\n', max_size=60))
def test_any_manifest_is_a_persona_or_a_warning(text: str) -> None:
    made = parse_manifest(Path("/memory/personas/x"), text)
    assert made if isinstance(made, str) else made.id == "x"
