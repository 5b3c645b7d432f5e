"""Skills that are plans: those of the examples, as people use them."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from component.skills.declare import skill
from component.skills.errors import SkillError
from tests.component.features.plans.planning import JULIET, answer
from tests.kit import Script, anyio_backend, service
from tests.kit.service import Kit
from tests.kit.xmpp import Peer

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[4] / "examples" / "skills"


@skill(name="web_search", read_only=True)
def web_search(query: str) -> str:
    """Search the web."""
    return f"Found about {query}."


@skill(name="url_fetch", read_only=True)
def url_fetch(url: str) -> str:
    """Fetch a page."""
    if "missing" in url:
        raise SkillError("There is no such page.")
    return f"The page {url}."


@asynccontextmanager
async def offering(directory: Path, *steps: Any) -> AsyncIterator[tuple[Kit, Peer]]:
    """Run a service that offers the plans of the examples, and whose model says these."""
    plans = directory / "plans"
    for name in ("topic-report", "compare-sources", "ask-people"):
        shutil.copytree(EXAMPLES / name, plans / name)
    settings = {"skills": {"directories": [str(plans)], "auto_approve": "confined"}}
    skills = [web_search, url_fetch]
    async with service(directory, settings, model=Script(*steps), skills=skills) as kit:
        yield kit, kit.peer(JULIET)


async def test_a_topic_is_searched_and_summed_up(tmp_path: Path) -> None:
    async with offering(tmp_path, "The tides are high.") as (kit, juliet):
        await juliet.say('/run topic_report topic="tides {of} Venice"')
        await juliet.hear("The tides are high.")
        assert "Found about tides {of} Venice news this week." in kit.model.asked


async def test_sources_are_read_side_by_side_and_one_that_fails_is_left_out(
    tmp_path: Path,
) -> None:
    async with offering(tmp_path, "They agree.") as (kit, juliet):
        await juliet.say(
            "/run compare_sources question=tides first=https://a.example second=https://missing"
        )
        said = await juliet.hear("They agree.")
        assert "Without: Read https://missing (There is no such page)" in said
        assert "The page https://a.example." in kit.model.asked
        assert "Found about tides." in kit.model.asked


async def test_several_people_are_asked_and_their_answers_summed_up(tmp_path: Path) -> None:
    async with offering(tmp_path, "Both come.") as (kit, juliet):
        people = {name: kit.peer(f"{name}@capulet.example/phone") for name in ("romeo", "paris")}
        await juliet.say(
            "/run ask_people question=Coming? people=romeo@capulet.example"
            " people=paris@capulet.example"
        )
        assert "romeo@capulet.example, paris@capulet.example" in await juliet.hear("May I carry")
        await answer(kit, juliet, "yes")
        for person in people.values():
            await person.hear("juliet@capulet.example asks: Coming?")
            await answer(kit, person, "I come")
        await juliet.hear("Both come.")
        assert "romeo@capulet.example: I come" in kit.model.asked
