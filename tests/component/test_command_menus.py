"""The menus and forms of commands (XEP-0050) of a whole service, as clients show them."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit import Peer, Script, anyio_backend, service
from tests.servers.talk import execute
from xep.binding import encode
from xep.commands import NAMESPACE, BadSessionId, Command
from xep.data_forms import Field, Form
from xep.disco import ItemsQuery
from xep.fluux_agent.execute import Accepted

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
NURSE = "nurse@capulet.example/kitchen"
ADMIN: dict[str, Any] = {"agent": {"admins": ["nurse@capulet.example"]}}
SKILLS = '''
from component.skills import Context, skill

@skill(destructive=False, durable=True, title="Long walk")
async def walk(context: Context) -> str:
    """Walk for a day."""
    await context.sleep(86_400)
    return "walked"

@skill(read_only=True, title="Tasks")
def homework() -> str:
    """Has the same title as a command."""
    return "none"

@skill(read_only=True)
def add(first: int, second_number: int = 1) -> int:
    """Add two numbers."""
    return first + second_number
'''


def with_skills(directory: Path) -> dict[str, Any]:
    """Return settings with the skills above."""
    (directory / "skills.py").write_text(SKILLS)
    return {"skills": {"modules": [str(directory / "skills.py")]}, **ADMIN}


async def menu(peer: Peer) -> list[tuple[str, str]]:
    """Return the nodes and titles of the commands, in the order of the service."""
    answer = await peer.iq("get", encode(ItemsQuery(node=NAMESPACE)))
    return [(item.node or "", item.name or "") for item in answer.require(ItemsQuery).items]


async def run(peer: Peer, command: Command) -> Command:
    """Return the answer to a command."""
    return (await peer.iq("set", encode(command))).require(Command)


async def submit(peer: Peer, asked: Command, **values: str) -> Command:
    """Return the answer to a form that is filled in with these values."""
    fields = tuple([Field(var=name, values=(value,)) for name, value in values.items()])
    form = Form(type="submit", fields=fields)
    return await run(peer, Command(node=asked.node, sessionid=asked.sessionid, form=form))


def options(command: Command, name: str) -> dict[str, str]:
    """Return the choices of a field of a form: the labels, by their values."""
    assert command.form is not None
    field = command.form.field(name)
    assert field is not None
    return {option.value: option.label or "" for option in field.options}


async def test_commands_of_every_day_come_first_and_those_of_admins_last(tmp_path: Path) -> None:
    async with service(tmp_path, with_skills(tmp_path), model=Script()) as kit:
        juliet, nurse = kit.peer(JULIET), kit.peer(NURSE)
        nodes = [node for node, _ in await menu(juliet)]
        first = nodes[: nodes.index("skill/add")]
        assert {"command/tasks", "command/schedule", "command/help", "command/stop"} <= {*first}
        assert all(node.startswith("command/") for node in first)
        rest = [node for node in nodes if node not in first]
        last = [node for node in rest if node.startswith("command/")]
        assert rest[-len(last) :] == last, "other commands come after the skills"
        assert "command/forget" in last
        of_admin = [node for node, _ in await menu(nurse)]
        assert of_admin[: len(first)] == first
        # An admin's /status is another command.
        theirs = [of_admin.index(node) for node in nodes if node != "command/status"]
        assert max(theirs) < min(map(of_admin.index, ("command/pause", "command/retry")))


async def test_a_menu_has_one_entry_for_each_thing(tmp_path: Path) -> None:
    async with service(tmp_path, with_skills(tmp_path), model=Script()) as kit:
        juliet = kit.peer(JULIET)
        nodes = {node for node, _ in await menu(juliet)}
        assert {"skill/add", "skill/walk", "command/new"} <= nodes
        assert not {"command/run", "command/skills", "command/reset"} & nodes
        assert "/run" in await juliet.ask("/help", "/run"), "in the chat they are commands"


async def test_only_equal_titles_are_followed_by_a_name(tmp_path: Path) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        titles = dict(await menu(kit.peer(JULIET)))
    assert titles["command/tasks"] == "Tasks (tasks)"
    assert titles["skill/homework"] == "Tasks (homework)"
    assert titles["skill/walk"] == "Long walk"
    assert len({*titles.values()}) == len(titles)


async def test_a_form_lists_tasks_by_their_titles(tmp_path: Path) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        juliet, nurse = kit.peer(JULIET), kit.peer(NURSE)
        assert options(await run(juliet, Command(node="command/cancel")), "task") == {}
        tasks = [(await juliet.iq("set", execute("walk"))).require(Accepted).task for _ in range(2)]
        await kit.settled()
        asked = await run(juliet, Command(node="command/cancel"))
        shown = options(asked, "task")
        assert {*shown} == {*tasks}
        for task, title in shown.items():
            assert title.startswith("Long walk ")
            assert title.endswith(f"({task})"), "they have begun in the same minute"
        ended = await submit(juliet, asked, task=tasks[0])
        assert (ended.status, ended.notes[0].type) == ("completed", "info")
        await kit.settled()
        ((task, title),) = options(
            await run(juliet, Command(node="command/cancel")), "task"
        ).items()
        assert task == tasks[1]
        assert task not in title
        seen = options(await run(nurse, Command(node="command/task")), "task")
        assert {*seen} == {*tasks}
        assert all("for juliet@capulet.example" in title for title in seen.values())


async def test_an_id_that_is_not_listed_can_be_submitted(tmp_path: Path) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        asked = await run(juliet, Command(node="command/cancel"))
        task = (await juliet.iq("set", execute("walk"))).require(Accepted).task
        assert (await submit(juliet, asked, task=task)).status == "completed"


async def test_a_form_lists_held_notifications_by_their_titles(tmp_path: Path) -> None:
    settings = {
        "notifications": {"quiet": "00:00-23:59"},
        "schedule": [
            {
                "name": "news",
                "when": "every 2 hours",
                "principal": "juliet@capulet.example",
                "goal": "Tell the news.",
            }
        ],
    }
    async with service(tmp_path, settings, model=Script(otherwise="No news.")) as kit:
        juliet = kit.peer(JULIET)
        await kit.jump(7200)
        await kit.advance(60)
        asked = await run(juliet, Command(node="command/drop-notification"))
        held, everything = options(asked, "id").items()
        assert held[1] == "news: No news."
        assert everything == ("all", "All of them")
        ended = await submit(juliet, asked, id=held[0])
        assert ended.notes[0].text == "1 notification dropped."


async def test_an_invalid_form_names_its_fields_in_the_instructions(tmp_path: Path) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        again = await submit(
            juliet, await run(juliet, Command(node="skill/add")), first="two", second_number="x"
        )
        assert again.status == "executing"
        assert again.form is not None
        said, *rest = again.form.instructions
        assert said == again.notes[0].text
        assert "First: expected an integer" in said or "first: expected an integer" in said
        assert "second" in said.casefold()
        assert rest == ["Add two numbers."]
        assert again.form.field("first").values == ("two",)  # type: ignore[union-attr]


async def test_every_form_comes_back_with_what_is_wrong_and_what_was_given(tmp_path: Path) -> None:
    """A client may show the instructions, the note or the field; each says it."""
    bad = "no such value!"
    async with service(tmp_path, with_skills(tmp_path), model=Script()) as kit:
        nurse = kit.peer(NURSE)
        tried = 0
        for node, _ in await menu(nurse):
            if node.startswith("http"):
                continue  # nobody here owns a node
            asked = await run(nurse, Command(node=node))
            if asked.form is None or asked.status != "executing":
                continue
            names = [each.var for each in asked.form.fields if each.type == "text-single"]
            values = {name: bad for name in names if name and name != "FORM_TYPE"}
            again = await submit(nurse, asked, **values)
            if again.status == "completed":
                # A skill that has run answers with an error; a command has done what was said.
                assert node.startswith("skill/") or again.notes[0].type == "info", node
                continue
            tried += 1
            assert again.form is not None
            (note,) = again.notes
            assert (note.type, again.form.instructions[0]) == ("error", note.text), node
            for name in values:
                field = again.form.field(name)
                assert field is not None
                assert field.values == (bad,), (node, name)
        assert tried >= 10


async def test_a_form_of_a_service_that_was_killed_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        asked = await run(juliet, Command(node="skill/add"))
        await kit.restart(kill=True)
        form = Form(type="submit", fields=(Field(var="first", values=("1",)),))
        again = Command(node=asked.node, sessionid=asked.sessionid, form=form)
        answer = await juliet.iq("set", encode(again))
        error = answer.error((BadSessionId,))
        assert error.application == (BadSessionId(),)
        assert error.text.endswith("Please start the command again.")
