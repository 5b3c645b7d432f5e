"""The guide for authors of skills: what it shows is loaded, run and killed here."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from component.skills import AnySkill, load_module, skills_of
from component.tasks.spoken import answer_in_words
from tests.component.tasks.world import AGENT, ANN, Ear, Open, living
from tests.servers.guides import DOCS, block
from xep.data_forms import Form
from xep.fluux_agent.task import AnswerParams, InputAnswer, Task

pytestmark = pytest.mark.anyio
GUIDE = DOCS / "skills.md"


@pytest.fixture
def lunch(tmp_path: Path) -> AnySkill:
    """The skill of the guide, loaded as the service loads it, with a file of orders beside it."""
    path = tmp_path / "lunch.py"
    path.write_text(block(GUIDE, "lunch.py"))
    (found,) = skills_of(load_module(str(path)))
    return found


def answer(task: Task, values: dict[str, object] | None) -> InputAnswer:
    """What a person says to the question; None declines."""
    assert task.input is not None
    assert task.revision is not None
    return InputAnswer(
        task=task.id,
        input=task.input.id,
        revision=task.revision,
        params=None
        if values is None
        else AnswerParams(json=msgspec.Raw(msgspec.json.encode(values))),
        form=Form(type="cancel") if values is None else None,
    )


async def test_the_worked_skill_survives_and_orders_once(
    lunch: AnySkill, tmp_path: Path, open_storage: Open
) -> None:
    ear = Ear()
    async with living(open_storage, lunch, ear=ear) as world:
        task = await world.task("lunch.order", params={"day": "Monday"})
        asked = await ear.in_state(task, "input-required")
        assert asked.input is not None
        assert asked.input.questions[0].text.startswith("What do you take on Monday")
    async with living(open_storage, lunch, ear=ear) as world:
        given = answer(asked, {"dish": "soup", "portions": 2})
        await world.room.answer(ANN.bare, AGENT, given)
        end = await ear.ended(task)
        assert end.result is not None
        assert [(one.name, one.text) for one in end.result.outputs] == [
            ("receipt", "2 soup, 8 euros"),
            ("output", "Ordered for Monday."),
        ]
    assert len((tmp_path / "orders.txt").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "ordered"), [("soup", "1 soup"), ("Salad", "1 salad"), ("soup 2", "2 soup")]
)
async def test_the_worked_skill_takes_words(
    words: str, ordered: str, lunch: AnySkill, open_storage: Open
) -> None:
    async with living(open_storage, lunch) as world:
        task = await world.task("lunch.order", params={"day": "Monday"})
        asked = await world.ear.in_state(task, "input-required")
        assert asked.input is not None
        given = answer_in_words(asked.input, task, words)
        assert given is not None
        await world.room.answer(ANN.bare, AGENT, given)
        end = await world.ear.ended(task)
        assert end.result is not None
        assert end.result.outputs[0].text.startswith(ordered)


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "Nothing was ordered."), ({"dish": "nothing"}, "There is nothing to order.")],
)
async def test_the_worked_skill_takes_a_no(
    given: dict[str, object] | None, said: str, lunch: AnySkill, tmp_path: Path, open_storage: Open
) -> None:
    async with living(open_storage, lunch) as world:
        task = await world.task("lunch.order", params={"day": "Monday"})
        asked = await world.ear.in_state(task, "input-required")
        await world.room.answer(ANN.bare, AGENT, answer(asked, given))
        end = await world.ear.ended(task)
        assert end.result is not None
        assert end.result.outputs[0].text == said
    assert not (tmp_path / "orders.txt").exists()


def test_every_other_example_is_python_that_declares_skills(tmp_path: Path) -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) >= 2
    for number, source in enumerate(shown):
        ast.parse(source)
        path = tmp_path / f"shown_{number}.py"
        path.write_text(source)
        assert skills_of(load_module(str(path)))
