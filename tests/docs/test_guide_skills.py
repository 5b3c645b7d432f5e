"""The guide for authors of skills: what it shows is loaded, run and killed here."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from component.app.features import load
from component.skills import Skill, load_module, skills_of
from component.skills.capabilities import Capabilities
from component.skills.manifest import Running, read_manifest
from component.task_messages.spoken_answers import answer_in_words
from tests.component.tasks.world import AGENT, ANN, Ear, Open, living
from tests.servers.guides import DOCS, block
from xep.data_forms import Form
from xep.fluux_agent.task import AnswerParams, InputAnswer, Task

pytestmark = pytest.mark.anyio
WRITE = DOCS / "how-to" / "write-skills.md"
DURABLE = DOCS / "how-to" / "durable-skills.md"
INSTALL = DOCS / "how-to" / "install-skills.md"
TEXT = "\n".join(page.read_text() for page in (WRITE, DURABLE, INSTALL))


@pytest.fixture
def lunch(tmp_path: Path) -> Skill:
    """The skill of the guide, loaded as the service loads it, with a file of orders beside it."""
    path = tmp_path / "lunch.py"
    path.write_text(block(DURABLE, "lunch.py"))
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
    lunch: Skill, tmp_path: Path, open_storage: Open
) -> None:
    ear = Ear()
    async with living(open_storage, lunch, ear=ear) as world:
        task = await world.task("lunch.order", params={"day": "Monday"})
        asked = await ear.in_state(task, "input-required")
        assert asked.input is not None
        assert asked.input.questions[0].text.startswith("What do you take on Monday")
    async with living(open_storage, lunch, ear=ear) as world:
        given = answer(asked, {"dish": "soup", "portions": 2})
        await world.service.answer(ANN.bare, AGENT, given)
        end = await ear.ended(task)
        assert end.result is not None
        assert [(one.name, one.text) for one in end.result.outputs] == [
            ("receipt", "2 soup, 8 euros"),
            ("output", "Ordered for Monday."),
        ]
    assert len((tmp_path / "orders.txt").read_text().splitlines()) == 1


@pytest.mark.parametrize(("words", "ordered"), [("Salad", "1 salad"), ("soup 2", "2 soup")])
async def test_the_worked_skill_takes_words(
    words: str, ordered: str, lunch: Skill, open_storage: Open
) -> None:
    async with living(open_storage, lunch) as world:
        task = await world.task("lunch.order", params={"day": "Monday"})
        asked = await world.ear.in_state(task, "input-required")
        assert asked.input is not None
        given = answer_in_words(asked.input, task, words)
        assert given is not None
        await world.service.answer(ANN.bare, AGENT, given)
        end = await world.ear.ended(task)
        assert end.result is not None
        assert end.result.outputs[0].text.startswith(ordered)


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "Nothing was ordered."), ({"dish": "nothing"}, "There is nothing to order.")],
)
async def test_the_worked_skill_takes_a_no(
    given: dict[str, object] | None, said: str, lunch: Skill, tmp_path: Path, open_storage: Open
) -> None:
    async with living(open_storage, lunch) as world:
        task = await world.task("lunch.order", params={"day": "Monday"})
        asked = await world.ear.in_state(task, "input-required")
        await world.service.answer(ANN.bare, AGENT, answer(asked, given))
        end = await world.ear.ended(task)
        assert end.result is not None
        assert end.result.outputs[0].text == said
    assert not (tmp_path / "orders.txt").exists()


def test_every_other_example_is_python_that_declares_skills(tmp_path: Path) -> None:
    found = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    shown = [source for source in found if "xmpp_agent.testing" not in source]
    assert len(shown) >= 2
    for number, source in enumerate(shown):
        ast.parse(source)
        path = tmp_path / f"shown_{number}.py"
        path.write_text(source)
        assert skills_of(load_module(str(path)))


async def test_the_survey_starts_waits_sleeps_and_branches(
    tmp_path: Path, open_storage: Open
) -> None:
    path = tmp_path / "survey.py"
    path.write_text(block(DURABLE, "survey.py"))
    skills = skills_of(load_module(str(path)))
    names = [f"source {number}" for number in range(5)]
    async with living(open_storage, *skills) as world:
        task = await world.task("survey.write", json={"names": names, "pause_s": 0.01})
        end = await world.ear.ended(task)
    assert end.result is not None
    text = end.result.outputs[-1].text
    assert text.splitlines() == [f"{name}: nothing new ({len(name) + 13})" for name in names]


def test_the_manifest_of_the_guide_is_valid() -> None:
    manifest = read_manifest(block(INSTALL, "skill.toml"))
    assert manifest.skill.capabilities.texts == (
        "network:api.example.com:443:https",
        "credential:weather-key",
    )


def test_every_key_of_a_manifest_is_in_the_guide() -> None:
    text = INSTALL.read_text()
    for table in (Running, Capabilities):
        for name in table.__struct_fields__:
            assert name in text, name


def test_the_test_of_the_guide_passes(tmp_path: Path) -> None:
    (tmp_path / "lunch.py").write_text(block(DURABLE, "lunch.py"))
    (tmp_path / "test_lunch.py").write_text(block(DURABLE, "test_lunch.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lunch.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "text", re.findall(r"^```toml\n(\[skills.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
)
def test_the_configuration_of_the_guide_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        f'[server]\ncomponent_domain = "agent.example.com"\ncomponent_secret = "x"\n{text}'
    )
    assert load(path, {"WEATHER_KEY": "x"}).notice is None
