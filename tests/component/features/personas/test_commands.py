"""The command about personas: choice, creation in a dialogue or by form, export and import."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from component.commands import (
    OPERATOR,
    Asking,
    CommandError,
    CommandResult,
    Commands,
    read_words,
)
from component.config.agents import Personas as Configured
from component.features.personas.commands import (
    PERSONA,
    Exported,
    PersonaCommands,
    PersonaParams,
    PersonaProposals,
)
from component.kernel.persona_dialogue import PersonaDialogue
from component.memory_directory import files
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import Texts
from component.personas.own_personas import LAPSE_S, Drafts, OwnPersonas
from component.personas.packages import LONGEST_TEXT, PersonaText
from component.personas.personas import Personas
from component.skills.form_fields import properties_of
from tests.component.audit.book import Book
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE, BOB = JID.parse("alice@a.example"), JID.parse("bob@b.example")

HERS = SessionKey("assistant", ALICE)
AT = JID.parse("assistant@agent.example")


class Proposals(PersonaProposals):
    """Notes what people describe. `who` may propose."""

    def __init__(self, who: JID | None) -> None:
        self.described: list[str] = []
        self._who = who

    def may_propose(self, principal: JID | None) -> bool:
        return principal is not None and principal == self._who

    async def propose(self, asking: Asking, description: str) -> CommandResult:
        self.described.append(description)
        return CommandResult("It is proposed.")


class Chat:
    """Alice in a chat with an agent. `again` restarts with the data on the disk."""

    def __init__(self, path: Path, **more: object) -> None:
        self.path = files.open_root(path)
        self.more = {"allow_user_personas": True, "allow_sharing": True} | more
        self.proposals = Proposals(None)
        self.now = 1_000_000.0
        self.again()

    def again(self) -> None:
        layout, texts = Layout(self.path), Texts(self.path)
        configured = Configured.model_validate(self.more)
        self.personas = Personas(layout, texts, configured)
        self.own = OwnPersonas(layout, self.personas, configured, Book())
        drafts = Drafts(layout, texts, clock=lambda: self.now)
        self.dialogue = PersonaDialogue(self.own, drafts)
        commands = PersonaCommands(self.personas, self.own, self.dialogue, self.proposals)
        self.commands = Commands(commands.commands())

    def of_all(self, id_: str, manifest: str = "") -> None:
        folder = self.path / "personas" / id_
        folder.mkdir(parents=True)
        (folder / "persona.toml").write_text(f'[persona]\nid = "{id_}"\n{manifest}')

    async def run(self, params: PersonaParams, asking: Asking | None = None) -> CommandResult:
        (command,) = self.commands.of(asking or Asking())
        return await command.run(asking or self.commands.asking(ALICE, AT), params)

    async def says(self, words: str, who: JID = ALICE) -> str:
        """Return the answer to `/persona` and these words."""
        answer = await self.run(read_words(PERSONA, words), self.commands.asking(who, AT))
        return answer.text

    async def answers(self, *texts: str) -> list[str | None]:
        return [await self.dialogue.answered(HERS, text) for text in texts]

    async def refused(self, words: str) -> tuple[str, str | None]:
        with pytest.raises(CommandError) as caught:
            await self.says(words)
        return str(caught.value), caught.value.param

    async def mine(self, id_: str) -> PersonaText:
        return await self.own.get(HERS, id_)


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path / "memory")


# -- chosen ----------------------------------------------------------------------------------------


async def test_personas_are_listed_and_chosen(chat: Chat) -> None:
    assert "/persona create" in await chat.says("list")
    assert (await chat.says("")).startswith("I am myself.")
    chat.of_all("mentor", 'name = "The Mentor"\ndescription = "Teaches."\nicon = "M"\n')
    chat.of_all("poet")
    assert await chat.says("The Mentor") == "I am now M The Mentor."
    assert await chat.says("") == "I am M The Mentor."
    await chat.says('create buddy role="A tutor"')
    assert (await chat.says("list")).splitlines() == [
        "Personas:",
        "- buddy (yours) - A tutor",
        "* M mentor - Teaches.",
        "- poet",
    ]
    assert await chat.says("reset") == "I am now myself again."
    assert (await chat.refused("nobody"))[1] == "persona"


async def test_the_operator_has_no_persona(chat: Chat) -> None:
    with pytest.raises(CommandError, match="over XMPP"):
        await chat.run(PersonaParams(), OPERATOR)


# -- made in the chat ------------------------------------------------------------------------------


async def test_three_answers_create_a_persona(chat: Chat) -> None:
    first = await chat.says("create Study Buddy")
    assert first.startswith("Three questions about Study Buddy.")
    assert "1 of 3: Who should it be" in first
    assert "/persona cancel" in first
    second, third, made, after = await chat.answers(
        "A tutor.\nFor exams.", " Kind ", "Ask, never tell.", "Hello?"
    )
    assert (second or "").startswith("2 of 3: How should it speak?")
    assert (third or "").startswith("3 of 3: Which rules")
    assert made == "Study Buddy is created. Send /persona study-buddy to use it."
    assert after is None
    assert await chat.mine("study-buddy") == PersonaText(
        id="study-buddy",
        name="Study Buddy",
        description="A tutor.",
        identity="A tutor.\nFor exams.",
        personality="Kind",
        instructions="Ask, never tell.",
    )
    assert await chat.says("study buddy") == "I am now Study Buddy."


async def test_the_dialogue_goes_on_after_a_crash(chat: Chat) -> None:
    await chat.says("create buddy")
    for answer in ("A tutor.", "Kind.", "Ask."):
        chat.again()
        assert (await chat.answers(answer))[0]
    assert (await chat.mine("buddy")).personality == "Kind."


@pytest.mark.parametrize(("room", "step"), [(OwnPersonas, "save"), (Drafts, "drop")])
async def test_a_crash_at_the_last_answer_loses_nothing(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, room: type, step: str
) -> None:
    async def killed(*_: object) -> None:
        raise KeyboardInterrupt

    await chat.says("create buddy")
    await chat.answers("A tutor.", "-")
    with monkeypatch.context() as patched:
        patched.setattr(room, step, killed)
        with pytest.raises(KeyboardInterrupt):
            await chat.answers("Ask.")
    chat.again()
    assert await chat.answers("Ask.", "Hello?") == [
        "buddy is created. Send /persona buddy to use it.",
        None,
    ]
    assert (await chat.mine("buddy")).instructions == "Ask."


async def test_a_dash_or_an_empty_answer_leaves_a_text_empty(chat: Chat) -> None:
    await chat.says("create buddy")
    assert (await chat.answers("-", " ", "Ask."))[
        2
    ] == "buddy is created. Send /persona buddy to use it."
    written = await chat.mine("buddy")
    assert (written.identity, written.personality, written.instructions) == ("", "", "Ask.")
    await chat.says("create nobody")
    assert (await chat.answers("-", "", "-"))[2] == (
        "It says nothing: who it is, how it speaks, or by which rules. So nothing has been created."
    )
    assert await chat.answers("Hello?") == [None]


async def test_an_answer_that_is_too_long_is_asked_for_again(chat: Chat) -> None:
    await chat.says("create buddy")
    (said,) = await chat.answers("x" * (LONGEST_TEXT + 1))
    assert said == "That has 4001 characters; the maximum is 4000. Please shorten it."
    assert (await chat.answers("x"))[0] is not None
    assert (await chat.answers("y", "z"))[1] == "buddy is created. Send /persona buddy to use it."


async def test_cancel_ends_the_creation_of_a_persona(chat: Chat) -> None:
    await chat.says("create buddy")
    await chat.answers("A tutor.")
    assert await chat.says("cancel") == "Cancelled."
    assert await chat.says("cancel") == "There is nothing to cancel."
    assert await chat.answers("Hello?") == [None]
    assert "no personas" in await chat.says("list")


async def test_the_dialogue_lapses_without_an_answer(chat: Chat) -> None:
    await chat.says("create buddy")
    chat.now += LAPSE_S + 1
    assert await chat.answers("Good morning!") == [None]


async def test_only_the_person_who_was_asked_answers_to_that_agent(chat: Chat) -> None:
    await chat.says("create buddy")
    assert await chat.dialogue.answered(SessionKey("assistant", BOB), "A spy.") is None
    assert await chat.dialogue.answered(SessionKey("researcher", ALICE), "A spy.") is None
    assert (await chat.answers("A tutor.", "-", "-"))[2] is not None
    assert "no personas" in await chat.says("list", BOB)


async def test_a_new_dialogue_replaces_the_earlier_one(chat: Chat) -> None:
    await chat.says("create one")
    await chat.answers("Of one.")
    await chat.says("create two")
    assert (await chat.answers("Of two.", "-", "-"))[
        2
    ] == "two is created. Send /persona two to use it."
    assert "one" not in (await chat.says("list")).split()


async def test_a_persona_that_is_not_allowed_is_refused_before_the_questions(
    tmp_path: Path,
) -> None:
    chat = Chat(tmp_path, max_user_personas=1)
    chat.of_all("mentor")
    assert "for all already" in (await chat.refused("create mentor"))[0]
    assert "small letters, digits" in (await chat.refused("create a/b"))[0]
    assert "has a meaning already" in (await chat.refused("create list"))[0]
    assert await chat.refused("create") == (
        "Say which one: /persona create study-buddy",
        "name",
    )
    await chat.says("create buddy role=x")
    assert "/persona edit buddy" in (await chat.refused("create buddy"))[0]
    assert "1 are the most" in (await chat.refused("create other"))[0]
    assert await chat.answers("Hello?") == [None]


async def test_no_questions_are_asked_unless_the_settings_allow_personas(tmp_path: Path) -> None:
    open_ = Chat(tmp_path)
    await open_.says("create buddy")
    chat = Chat(tmp_path, allow_user_personas=False)
    assert await chat.answers("A tutor.") == [None]
    for words in ("create x", "edit x", "delete x", "export x", "import x"):
        assert "the operator has not allowed it" in (await chat.refused(words))[0]
    assert await chat.says("list") == "There are no personas."


# -- described ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "described"),
    [
        ("create a poet that doesn't rhyme", "a poet that doesn't rhyme"),
        ('create A poet.\nIt says "no".', 'A poet.\nIt says "no".'),
        ("create description='A poet.'", "A poet."),
        ("create Study Buddy", ""),
        ("create 'My Very Own Study Buddy' role=Tutor", ""),
    ],
)
async def test_more_words_than_a_name_has_describe_a_persona_to_propose(
    chat: Chat, words: str, described: str
) -> None:
    chat.proposals = Proposals(ALICE)
    chat.again()
    said = await chat.says(words)
    assert chat.proposals.described == ([described] if described else [])
    assert (said == "It is proposed.") == bool(described)


async def test_those_who_cannot_propose_write_their_own_personas(tmp_path: Path) -> None:
    chat = Chat(tmp_path)
    assert "Three questions about a poet for my birthday" in await chat.says(
        "create a poet for my birthday"
    )
    closed = Chat(tmp_path, allow_user_personas=False)
    assert "has not allowed it" in (await closed.refused("create poet"))[0]
    closed.proposals = Proposals(ALICE)
    closed.again()
    assert "Describe the persona in more than 3 words" in (await closed.refused("create poet"))[0]


# -- changed, removed ------------------------------------------------------------------------------


async def test_an_edit_shows_the_current_texts(chat: Chat) -> None:
    await chat.says('create buddy role="A tutor." style=Kind. rules="Ask."')
    first = await chat.says("edit BUDDY")
    assert "= keeps the current text" in first
    assert first.endswith("Now: A tutor.")
    second, third, made = await chat.answers("A coach.", "=", "-")
    assert (second or "").endswith("Now: Kind.")
    assert (third or "").endswith("Now: Ask.")
    assert made == "buddy is changed. Send /persona buddy to use it."
    assert await chat.mine("buddy") == PersonaText(
        id="buddy", name="buddy", description="A coach.", identity="A coach.", personality="Kind."
    )
    assert "You have no persona 'other'" in (await chat.refused("edit other"))[0]


async def test_a_persona_that_is_deleted_during_an_edit(chat: Chat) -> None:
    await chat.says("create buddy role=x")
    await chat.says("edit buddy")
    await chat.says("delete buddy")
    assert await chat.answers("y", "Hello?") == [
        "You have no persona 'buddy' of your own. So nothing has been changed.",
        None,
    ]


async def test_a_deleted_persona_is_not_used_any_more(chat: Chat) -> None:
    await chat.says("create one role=x")
    await chat.says("create two role=x")
    await chat.says("two")
    assert await chat.says("delete one") == "one is deleted."
    assert await chat.says("delete two") == "two is deleted. I am now myself again."
    with capture_logs() as logs:
        assert await chat.says("") == "I am myself. /persona list shows who else I can be."
    assert logs == []
    chat.of_all("mentor")
    assert "You have no persona 'mentor' of your own" in (await chat.refused("delete mentor"))[0]


# -- by form ---------------------------------------------------------------------------------------


def test_the_form_has_fields_for_long_texts() -> None:
    found = {each.name: each for each in properties_of(PERSONA.schema)}
    assert list(found) == ["persona", "name", "description", "role", "style", "rules", "toml"]
    assert [name for name, each in found.items() if each.several_lines] == [
        *("description", "role", "style", "rules", "toml")
    ]
    assert all(each.title and each.description for each in found.values())
    assert not any(each.required for each in found.values())


async def test_a_form_creates_and_changes_a_persona_immediately(chat: Chat) -> None:
    made = PersonaParams(persona="create", name=("Study", "Buddy"), role="A tutor.", rules="a\nb")
    assert (await chat.run(made)).text.startswith("Study Buddy is created.")
    changed = PersonaParams(persona="edit", name=("study-buddy",), style="Kind.", rules="-")
    assert (await chat.run(changed)).text.startswith("Study Buddy is changed.")
    written = await chat.mine("study-buddy")
    assert (written.identity, written.personality, written.instructions) == (
        *("A tutor.", "Kind."),
        "",
    )
    assert await chat.answers("Hello?") == [None]


@pytest.mark.parametrize(
    ("params", "param"),
    [
        (PersonaParams(persona="create", role="x"), "name"),
        (PersonaParams(persona="list", name=("x",)), "name"),
        (PersonaParams(persona="mentor", rules="x"), "rules"),
        (PersonaParams(role="x"), "role"),
        (PersonaParams(persona="create", name=("x",), toml="x"), "toml"),
        (PersonaParams(persona="create", name=("x",), description="y"), "description"),
        (PersonaParams(persona="edit", description="y"), "description"),
        (PersonaParams(persona="create", description="y", role="x"), "role"),
        (PersonaParams(persona="create", name=("a/b",), role="x"), "name"),
        (PersonaParams(persona="import", toml="x"), "toml"),
        (PersonaParams(persona="import"), "toml"),
        (PersonaParams(persona="nobody"), "persona"),
    ],
)
async def test_the_field_that_does_not_fit_is_named(
    chat: Chat, params: PersonaParams, param: str
) -> None:
    with pytest.raises(CommandError) as caught:
        await chat.run(params)
    assert caught.value.param == param
    assert str(caught.value)


# -- handed on -------------------------------------------------------------------------------------


async def test_an_exported_persona_can_be_imported_by_another_person(chat: Chat) -> None:
    await chat.says('create "Study Buddy" role="A tutor.\nFor \\"exams\\"." rules="Don\'t tell."')
    answer = await chat.run(PersonaParams(persona="export", name=("study", "buddy")))
    assert isinstance(answer.value, Exported)
    assert answer.value.toml == answer.text
    said = await chat.says(f"import\n{answer.text}", BOB)
    assert said == "Study Buddy is imported. Send /persona study-buddy to use it."
    theirs = await chat.own.get(SessionKey("assistant", BOB), "study-buddy")
    assert theirs == await chat.mine("study-buddy")
    assert theirs.identity == 'A tutor.\nFor "exams".'
    why, _ = await chat.refused(f"import {answer.text}")
    assert (
        why == "You already have a persona 'study-buddy'. Send /persona delete study-buddy first."
    )


@pytest.mark.parametrize("text", ["", "x" * 70_000, "[persona", "a" + ".a" * 30_000 + "=1", "\0"])
async def test_an_invalid_import_is_refused_with_a_sentence(chat: Chat, text: str) -> None:
    why, param = await chat.refused(f"import {text}")
    assert len(why) < 300
    assert param == "toml"


async def test_packages_written_by_hand_can_be_listed(chat: Chat) -> None:
    await chat.says("create buddy role=x")
    folder = chat.path / "alice@a.example" / "personas" / "buddy"
    (folder / "identity.md").write_text("a\0b")
    assert (await chat.says("edit buddy")).endswith("Now: a\ufffdb")
    assert "control characters" in (await chat.refused("export buddy"))[0]
    (folder / "persona.toml").write_text('[persona]\nid = "buddy"\ndefaults = { tier = "\\u0001" }')
    with capture_logs():
        assert (await chat.refused("edit buddy"))[0].isprintable()


async def test_an_import_obeys_the_limits_of_own_personas(tmp_path: Path) -> None:
    chat = Chat(tmp_path, restrictions=[{"jid": "*@a.example", "allowed": ["code-*"]}])
    text = '[persona]\nid = "{}"\n[persona.texts]\nidentity = "X"\n'
    assert "You may not have" in (await chat.refused("import " + text.format("poet")))[0]
    assert "is imported" in await chat.says("import " + text.format("code-poet"))
    closed = Chat(tmp_path, allow_sharing=False)
    for words in ("import " + text.format("x"), "export code-poet"):
        assert "not exported or imported here" in (await closed.refused(words))[0]
