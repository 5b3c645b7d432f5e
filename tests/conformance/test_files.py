"""The files that a run is given: skills by other names, and expected failures."""

from pathlib import Path
from typing import Any

import pytest

from conformance.baseline import read_baseline, unknown_ids
from conformance.model import Outcome
from conformance.requirements import load
from conformance.skills_map import Skill, fixtures, read_map
from tests.conformance.by_server import attached, judged
from tests.conformance.small_agent import SCHEMAS, SmallAgent
from xep.fluux_agent.execute import Execute, Output, Result


def test_a_map_names_the_targets_own_skills(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text(
        '[echo]\nskill = "repeat"\nparams = { text = "message" }\nwith = { voice = "calm" }\n'
    )
    skills = read_map(path)
    assert skills["echo"] == Skill("repeat", {"text": "message"}, {"voice": "calm"})
    assert skills["echo"].param("text") == "message"
    assert skills["add"] == fixtures()["add"]


class Renamed(SmallAgent):
    """The small agent, which calls the skill that says a text back `repeat`, and wants a voice."""

    schemas = {
        "repeat": {"message": {"type": "string"}, "voice": {"type": "string", "enum": ["calm"]}}
    } | {name: schema for name, schema in SCHEMAS.items() if name != "conformance.echo"}

    async def _run(self, request: Execute, params: dict[str, Any]) -> Result:
        if request.skill == "repeat":
            return Result(skill="repeat", outputs=(Output(name="result", text=params["message"]),))
        return await super()._run(request, params)


@pytest.mark.anyio
async def test_checks_call_the_targets_own_skills(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text(
        '[echo]\nskill = "repeat"\nparams = { text = "message" }\nwith = { voice = "calm" }\n'
    )
    words = ["execute.first-draft", "execute.param-repeated", "params.both", "attack.payload"]
    async with attached(Renamed()) as way:
        lost = await judged(way, words)
        found = await judged(way, words, read_map(path))
    assert [one.reason for one in lost.results if "not offered conformance.echo" in one.reason]
    assert not [one for one in found.results if one.outcome is Outcome.BLOCKED and not one.optional]
    assert found.good


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[repeat]\nskill = 'x'", "is no role; the roles are echo"),
        ("[echo]\nname = 'x'", "needs skill ="),
        ("echo = 'x'", "needs skill ="),
        ("[echo]\nskill = 'x'\nparams = { word = 'y' }", "has no parameter word; it has: text"),
        ("[echo]\nskill = 'x'\nparams = 'y'", "is a table of texts"),
        ("[echo]\nskill = 'x'\nwith = { a = 1 }", "is a table of texts"),
        ("[echo]\nskill = 'x'\nprams = {}", "knows skill, params and with, not prams"),
        ("[echo", "this is no TOML"),
    ],
)
def test_a_map_that_does_not_fit_says_where(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "map.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"map\.toml: ") as raised:
        read_map(path)
    assert says in str(raised.value)


def test_a_baseline_gives_reasons(tmp_path: Path) -> None:
    path = tmp_path / "baseline.toml"
    path.write_text("[[expected]]\nid = 'EXE-012'\nreason = 'later'\n")
    baseline = read_baseline(path)
    assert baseline == {"EXE-012": "later"}
    assert unknown_ids(baseline, load().by_id) == ()
    assert unknown_ids({"EXE-999": "never"}, load().by_id) == ("EXE-999",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[expected]]\nid = 'EXE-012'", "entry 1 needs an id and a reason"),
        ("[[expected]]\nid = 1\nreason = 'x'", "entry 1 needs an id and a reason"),
        ("[[expected]]\nid = 'A'\nreason = 'x'\n[[expected]]\nid = 'A'\nreason = 'y'", "A stands"),
        ("[[broken]]\nid = 'A'", "not broken"),
        ("expected = 'A'", "written [[expected]]"),
        ("expected = ['A']", "entry 1 needs an id and a reason"),
        ("[[", "this is no TOML"),
    ],
)
def test_a_baseline_that_does_not_fit_says_where(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "baseline.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"baseline\.toml: ") as raised:
        read_baseline(path)
    assert says in str(raised.value)
