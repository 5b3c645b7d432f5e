"""Skills in the chat, with and without a model: `/skills`, `/run` and `/help`."""

from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec
import pytest

from component.models.protocol import ModelUnavailableError
from component.skills import Context, Skill, skill
from component.skills.outputs import Link, SkillResult
from tests.kit import Kit, Peer, Script, anyio_backend, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
ROMEO = "romeo@montague.example/garden"
SILENT = "[agent]\nnotice = ''\nallowed_domains = ['capulet.example', 'montague.example']\n"


@skill(name="weather", title="Weather", read_only=True, tags=["travel"])
def weather(
    city: Annotated[str, msgspec.Meta(description="Name of the city.")],
    days: Annotated[int, msgspec.Meta(ge=1, le=14)] = 1,
    scale: Literal["metric", "imperial"] = "metric",
    *,
    rain: bool = False,
    factor: float = 1.0,
    tags: tuple[str, ...] = (),
) -> str:
    """Tell the weather of a city."""
    return f"{city}, {days}, {scale}, {rain}, {factor}, {'+'.join(tags)}"


@skill(name="route", title="Route", read_only=True, tags=["travel"])
def route(stops: list[str], options: dict[str, int] | None = None) -> str:
    """Find a way."""
    return f"{' > '.join(stops)} {options}"


wiped: list[str] = []


@skill(name="wipe", title="Wipe a disk", destructive=True)
def wipe(disk: str) -> str:
    """Delete everything on a disk."""
    wiped.append(disk)
    return f"{disk} is wiped."


@skill(name="photo", title="Photo", read_only=True)
def photo() -> SkillResult:
    """Take a photo."""
    return SkillResult(outputs=(Link("https://files.example/cat.jpg", "image/jpeg", "cat.jpg"),))


@skill(name="slow", title="Slow", read_only=True)
async def slow(context: Context) -> str:
    """Take long."""
    await anyio.sleep(100)
    return "At last."


ALL: tuple[Skill, ...] = (weather, route, wipe, photo, slow)


async def said(kit: Kit, juliet: Peer, text: str) -> list[str]:
    """Return what is answered to a message in no time."""
    juliet.take()
    await juliet.say(text)
    await kit.settled()
    return [one.text_of("body") or "" for one in juliet.take() if one.text_of("body")]


async def only(kit: Kit, juliet: Peer, text: str) -> str:
    (answer,) = await said(kit, juliet, text)
    return answer


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ("city=Paris", "Paris, 1, metric, False, 1.0, "),
        ("Paris", "Paris, 1, metric, False, 1.0, "),
        ("Paris 3", "Paris, 3, metric, False, 1.0, "),
        ("city='New York' days=3", "New York, 3, metric, False, 1.0, "),
        ("city=\N{LEFT DOUBLE QUOTATION MARK}New York\N{RIGHT DOUBLE QUOTATION MARK}", "New York"),
        ("city=Paris scale=Imperial rain=yes", "Paris, 1, imperial, True"),
        ("city=Paris rain=false factor=2.5", "False, 2.5"),
        ("city=Paris tags=a,b", "a+b"),
        ("city=Paris tags=a tags=b", "a+b"),
        ('city=Paris tags=["a, b", "c"]', "a, b+c"),
        ("city=a=b", "a=b, 1"),
        ("city=Rome\n days=2", "Rome, 2"),
        ('city="{\\"x\\": 1}"', '{"x": 1}, 1'),
    ],
)
@pytest.mark.parametrize("model", [None, Script()], ids=["without a model", "with a model"])
async def test_values_are_read_by_their_types(
    tmp_path: Path, words: str, result: str, model: Script | None
) -> None:
    async with service(tmp_path, SILENT, model=model, skills=ALL) as kit:
        assert result in await only(kit, kit.peer(JULIET), f"/run weather {words}")


async def test_lists_and_objects_are_given_as_json(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        text = '/run route stops=["Verona","Old Town"] options={"speed": 3, "lanes": 2}'
        expected = "Verona > Old Town {'speed': 3, 'lanes': 2}"
        assert await only(kit, juliet, text) == expected
        curly = text.replace('"Verona"', "\u201cVerona\u201d")
        assert await only(kit, juliet, curly) == expected
        assert "not valid JSON" in await only(kit, juliet, "/run route stops=a options={speed")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "/run weather",
            ["Weather needs:", "- city: Name of the city.", "/run weather city="],
        ),
        ("/run weather days=3", ["Weather also needs:", "- city: Name of the city."]),
        ("/run skill=wheather city=x", ["no skill called 'wheather'", "mean weather?"]),
        ("/run", ["Say which skill", "/skills"]),
        ("/run weathr city=x", ["no skill called 'weathr'", "Did you mean weather?"]),
        ("/run weather city=x days=many", ["days: expected an integer", "For example: /run"]),
        ("/run weather city=x days=99", ["days", "For example: /run weather city="]),
        ("/run weather city=x scale=odd", ["scale: expected one of imperial, metric"]),
        ("/run weather city=x town=y", ["weather has no 'town'", "city, days, scale"]),
        ("/run weather a 1 metric maybe", ["rain: expected true or false"]),
        ("/run weather city='x", ["incomplete"]),
        ("/run wipe a b", ["one word too many for wipe"]),
    ],
)
async def test_mistakes_are_explained_in_sentences(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        answer = await only(kit, kit.peer(JULIET), text)
        assert [part for part in parts if part not in answer] == [], answer


async def test_a_skill_that_needs_a_confirmation_asks_first(tmp_path: Path) -> None:
    wiped.clear()
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        waits, question = await said(kit, juliet, "/run wipe disk=sda")
        assert waits == "Wipe a disk waits for an answer. I'll send you the result."
        assert "sda" in question
        assert wiped == []
        await kit.advance(60)  # a person reads it
        await juliet.say("yes")
        assert await juliet.hear("wiped") == "sda is wiped."
        assert wiped == ["sda"]


async def test_a_denied_skill_does_nothing(tmp_path: Path) -> None:
    wiped.clear()
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        await said(kit, juliet, "/run wipe disk=sda")
        await kit.advance(60)
        await juliet.say("no")
        await juliet.hear("not allowed")
        assert wiped == []


async def test_the_same_message_runs_a_skill_once(tmp_path: Path) -> None:
    wiped.clear()
    async with service(tmp_path, f"{SILENT}[policy]\nconfirm = 'never'\n", skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        message = (
            f"<message to='{kit.agent}' type='chat' id='one-message-with-a-long-id'>"
            "<body>/run wipe disk=sda</body></message>"
        )
        await juliet.send(message)
        assert await juliet.hear() == "sda is wiped."
        await kit.restart(kill=True)
        await juliet.send(message)  # its client has seen no receipt
        assert await juliet.hear() == "sda is wiped."
        assert wiped == ["sda"]


async def test_a_skill_that_takes_long_sends_its_result_later(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run slow")
        assert "Slow takes a while" in await juliet.hear()
        assert await juliet.hear(within_s=600) == "At last."


async def test_a_file_is_shown_by_its_address(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        answer = await only(kit, kit.peer(JULIET), "/run photo")
        assert answer == "cat.jpg:\nhttps://files.example/cat.jpg"


async def test_skills_of_others_do_not_exist(tmp_path: Path) -> None:
    rule = "[[policy.rules]]\nskills = ['wipe']\nallowed_jids = ['romeo@montague.example']\n"
    async with service(tmp_path, SILENT + rule, skills=ALL) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer(ROMEO)
        assert "There is no skill called 'wipe'" in await only(kit, juliet, "/run wipe disk=sda")
        assert "wipe" not in await only(kit, juliet, "/skills")
        assert "no command or skill called 'wipe'" in await only(kit, juliet, "/help wipe")
        assert "wipe" in await only(kit, romeo, "/skills")


async def test_skills_are_listed_in_groups_and_explained(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        listed = await only(kit, juliet, "/skills")
        assert "Travel:\n- Route (route): Find a way.\n- Weather (weather): Tell" in listed
        assert "Others:\n" in listed
        explained = await only(kit, juliet, "/skills Weather")
        assert explained == await only(kit, juliet, "/help weather")
        assert explained.splitlines() == [
            "Weather (weather)",
            "Tell the weather of a city.",
            "It needs:",
            "- city: Name of the city.",
            "You can also give:",
            "- days (a whole number from 1 to 14; default 1)",
            "- scale (one of metric, imperial; default metric)",
            "- rain (yes or no; default no)",
            "- factor (a number; default 1.0)",
            "- tags (a list, such as a,b)",
            'For example: /run weather city="…"',
        ]


async def test_the_example_of_each_skill_is_understood(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        for one in ("weather", "route", "photo"):
            explained = await only(kit, juliet, f"/help {one}")
            example = explained.partition("For example: ")[2]
            assert "For example" not in await only(kit, juliet, example)


@pytest.mark.parametrize("admin", [False, True])
@pytest.mark.parametrize("model", [None, Script()], ids=["without a model", "with a model"])
async def test_help_has_groups_of_at_most_seven_commands(
    tmp_path: Path, admin: bool, model: Script | None
) -> None:
    admins = "admins = ['juliet@capulet.example']\n" if admin else ""
    async with service(tmp_path, SILENT + admins, model=model, skills=ALL) as kit:
        juliet = kit.peer(JULIET)
        text = await only(kit, juliet, "/help")
        first, *groups, _ = text.split("\n\n")
        assert first.startswith("Just write to me" if model else "I am Assistant. I can't talk")
        assert groups[0].startswith("Every day:\n/skills - ")
        commands = [line for group in groups for line in group.splitlines()[1:]]
        assert all(len(group.splitlines()) <= 8 for group in groups)
        offered = kit.kernel.commands.of(kit.kernel.commands.asking(juliet.jid))
        assert {line.split()[0] for line in commands} == {f"/{one.name}" for one in offered}
        assert ("/audit" in text) == admin


async def test_every_message_is_answered_while_no_model_is_available(tmp_path: Path) -> None:
    admins = "admins = ['juliet@capulet.example']\n"
    model = Script(otherwise=ModelUnavailableError("It is away."))
    async with service(tmp_path, SILENT + admins, model=model, skills=ALL) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer(ROMEO)
        for text in ("Hello", "Is anybody there?"):
            answer = await only(kit, romeo, text)
            assert "can't reach my language model" in answer
            assert "/run" in answer
            assert "doctor" not in answer
            assert "xmpp-agent doctor" in await only(kit, juliet, text)
        assert "Paris" in await only(kit, romeo, "/run weather city=Paris")


async def test_every_message_is_answered_without_a_model(tmp_path: Path) -> None:
    admins = "admins = ['juliet@capulet.example']\n"
    async with service(tmp_path, SILENT + admins, skills=ALL) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer(ROMEO)
        for text in ("Hello", "Is anybody there?", "Hello?"):
            answer = await only(kit, romeo, text)
            assert "/run" in answer
            assert "[llm]" not in answer
            assert "[llm]" in await only(kit, juliet, text)
