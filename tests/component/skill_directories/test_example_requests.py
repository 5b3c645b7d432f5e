"""The examples that are HTTP requests pass their own tests, and say which effects they have."""

import tomllib
from pathlib import Path

import pytest

from component.cli.local_skills import directory_skill
from component.skill_directories.cases import ScriptedNetwork, read_cases, run_case
from component.skill_directories.host_functions import Services

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"
REQUESTS = sorted(
    path.parent
    for path in EXAMPLES.glob("*/skill.toml")
    if tomllib.loads(path.read_text())["skill"]["execution"]["kind"] == "rest"
)
REPLIES = {"slack.reply", "discord.followup", "github.comment"}
"""Those that only add to what somebody else has begun."""


@pytest.mark.parametrize("directory", REQUESTS, ids=lambda one: one.name)
async def test_its_cases_pass(directory: Path) -> None:
    network = ScriptedNetwork()
    services = Services(gates=network.gate)
    cases = read_cases(directory)
    async with directory_skill(directory, trusted=False, services=services) as skill:
        found = [(case.name, await run_case(skill, case, network)) for case in cases]
    assert found == [(name, "") for name, _ in found]
    assert len(found) > 1
    marks = skill.annotations
    assert (marks.open_world, marks.idempotent) == (True, skill.name == "weather")
    if not marks.read_only:
        assert marks.destructive == (skill.name not in REPLIES)
    assert len([each for each in skill.capabilities if each.startswith("network:")]) == 1
