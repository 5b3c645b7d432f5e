"""The domain of the service and the address with the name of its default agent are one agent: work
comes from the address at which it was asked for, and each address answers for the other.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.kit import AGENT, Kit, Peer, Script, anyio_backend, call, service
from tests.kit.xmpp import body
from tests.servers.talk import execute
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import NAMESPACE as TASK
from xep.fluux_agent.task import Task

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

NAMED = f"assistant@{AGENT}"
JULIET = "juliet@capulet.example/balcony"
BOTH = pytest.mark.parametrize(("here", "other"), [(AGENT, NAMED), (NAMED, AGENT)])
HOUR_S = 3600
SKILLS = '''
from component.skills import Context, skill

@skill(destructive=True)
def gate_open(name: str) -> str:
    """Open a gate."""
    return f"The gate {name} is open."

@skill(destructive=False, durable=True, title="Long walk")
async def walk(context: Context) -> str:
    """Walk for a day."""
    await context.sleep(86_400)
    return "walked"
'''
DAILY: dict[str, Any] = {
    "schedule": [
        {
            "name": "news",
            "when": "every 2 hours",
            "principal": "juliet@capulet.example",
            "goal": "Tell the news.",
        }
    ]
}


def with_skills(directory: Path) -> dict[str, Any]:
    """Return settings with the skills above."""
    (directory / "skills.py").write_text(SKILLS)
    return {"skills": {"modules": [str(directory / "skills.py")]}}


def who_said(peer: Peer, words: str) -> set[str | None]:
    """Return the addresses from which all messages with these words have come."""
    return {each.sender for each in peer.stanzas if words in body(each)}


async def use(kit: Kit, peer: Peer, address: str) -> None:
    """Let a person write to an address, and wait for the answer."""
    await peer.say("/ping", address)
    await kit.settled()


@BOTH
async def test_a_reminder_comes_from_the_address_at_which_it_was_asked_for(
    tmp_path: Path, here: str, other: str
) -> None:
    async with service(tmp_path, model=Script("Tea, Juliet.")) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/schedule add in 2 hours: remind me of tea", here)
        await juliet.hear("Added")
        await use(kit, juliet, other)
        await kit.restart(kill=True)
        await kit.jump(2 * HOUR_S)
        await juliet.hear("Tea, Juliet.", within_s=300)
        assert who_said(juliet, "Tea, Juliet.") == {here}


ASKED = '[[policy.rules]]\nskills = ["schedule_add"]\nconfirm = "always"\n'


@BOTH
async def test_a_reminder_that_the_model_adds_is_confirmed_at_either_address(
    tmp_path: Path, here: str, other: str
) -> None:
    model = Script(
        call("schedule_add", when="in 2 hours", goal="Remind the person of tea."),
        otherwise="Tea, Juliet.",
    )
    async with service(tmp_path, ASKED, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Remind me of tea in two hours", here)
        question = await juliet.hear("yes or no")
        await kit.advance(10)
        await juliet.say("yes", other)
        await juliet.hear("Approved")
        await juliet.hear("Tea, Juliet.")
        assert who_said(juliet, question) == {here}
        juliet.stanzas.clear()
        await kit.jump(2 * HOUR_S)
        await juliet.hear("Tea, Juliet.", within_s=300)
        assert who_said(juliet, "Tea, Juliet.") == {here}


async def test_work_of_the_settings_comes_from_the_address_that_a_person_uses(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, DAILY, model=Script(otherwise="No news.")) as kit:
        juliet = kit.peer(JULIET)
        for used, expected in ((None, NAMED), (AGENT, AGENT), (NAMED, NAMED)):
            if used is not None:
                await use(kit, juliet, used)
                await kit.restart(kill=True)
            juliet.stanzas.clear()
            juliet.take()
            await kit.jump(2 * HOUR_S)
            await juliet.hear("No news.", within_s=300)
            assert who_said(juliet, "No news.") == {expected}


async def test_work_of_the_settings_comes_from_the_contact_in_the_roster(tmp_path: Path) -> None:
    async with service(tmp_path, DAILY, model=Script(otherwise="No news.")) as kit:
        juliet = kit.peer(JULIET)
        await juliet.send(f"<presence to='{AGENT}' type='subscribe'/>")
        await kit.settled()
        await kit.jump(2 * HOUR_S)
        await juliet.hear("No news.", within_s=300)
        assert who_said(juliet, "No news.") == {AGENT}


async def test_a_domain_that_has_changed_is_written_from_no_more(tmp_path: Path) -> None:
    schedule = "/schedule add in 2 hours: remind me of tea"
    async with service(tmp_path, model=Script()) as kit:
        await kit.peer(JULIET).ask(schedule, "Added")
    settings = {"server": {"component_domain": "bot.capulet.example"}}
    async with service(tmp_path, settings, model=Script("Tea, Juliet.")) as kit:
        juliet = kit.peer(JULIET)
        await kit.jump(2 * HOUR_S)
        await juliet.hear("Tea, Juliet.", within_s=300)
        assert who_said(juliet, "Tea, Juliet.") == {"assistant@bot.capulet.example"}


@BOTH
async def test_a_question_of_a_task_is_answered_at_the_other_address(
    tmp_path: Path, here: str, other: str
) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.iq("set", execute("gate_open", name="north"), here)
        await juliet.hear("north")
        await kit.advance(10)
        await juliet.say("yes", other)
        assert (await juliet.hear("Approved")).startswith("Approved")
        await kit.settled()
        assert who_said(juliet, "Approved") == {other}
        events = [each for each in juliet.stanzas if Task.xml.tag in each.child_names]
        assert {each.sender for each in events} == {here}
        assert events[-1].require(Task).state == "completed"


@BOTH
async def test_a_yes_is_doubtful_if_each_address_has_asked(
    tmp_path: Path, here: str, other: str
) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        asked = (await juliet.iq("set", execute("gate_open", name="north"), here)).require(Accepted)
        await juliet.hear("north")
        await kit.advance(10)
        await juliet.iq("set", f"<cancel xmlns='{TASK}' id='{asked.task}'/>", here)
        await juliet.iq("set", execute("gate_open", name="south"), other)
        await juliet.hear("south")
        await kit.advance(10)
        # This may be meant for the question that was there a moment ago.
        await juliet.say("yes", here)
        assert "I haven't done it" in await juliet.hear("haven't")


@BOTH
async def test_tasks_are_listed_and_cancelled_at_either_address(
    tmp_path: Path, here: str, other: str
) -> None:
    async with service(tmp_path, with_skills(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        accepted = (await juliet.iq("set", execute("walk"), here)).require(Accepted)
        await juliet.say("/tasks", other)
        assert "walk" in await juliet.hear("walk")
        await juliet.say(f"/cancel {accepted.task}", other)
        assert "cancel" in await juliet.hear("cancel")


@BOTH
async def test_the_conversation_is_one(tmp_path: Path, here: str, other: str) -> None:
    model = Script("Noted.", "It is Rosaline.")
    async with service(tmp_path, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("My cousin is called Rosaline.", here)
        await juliet.hear("Noted.")
        await juliet.say("What is she called?", other)
        await juliet.hear("It is Rosaline.")
        assert who_said(juliet, "It is Rosaline.") == {other}
    assert "My cousin is called Rosaline." in model.asked


@BOTH
async def test_what_is_held_at_one_address_is_forgotten_at_the_other(
    tmp_path: Path, here: str, other: str
) -> None:
    settings = {"notifications": {"quiet": "00:00-23:59"}, **DAILY}
    async with service(tmp_path, settings, model=Script(otherwise="No news.")) as kit:
        juliet = kit.peer(JULIET)
        await use(kit, juliet, here)
        await kit.jump(2 * HOUR_S)
        await kit.advance(60)
        await juliet.say("/forget", other)
        await kit.settled()
        await juliet.say("/notifications", here)
        assert await juliet.hear("held notifications") == "There are no held notifications."


@BOTH
async def test_held_notifications_are_listed_and_deleted_at_either_address(
    tmp_path: Path, here: str, other: str
) -> None:
    settings = {"notifications": {"quiet": "00:00-23:59"}, **DAILY}
    async with service(tmp_path, settings, model=Script(otherwise="No news.")) as kit:
        juliet = kit.peer(JULIET)
        await use(kit, juliet, here)
        await kit.jump(2 * HOUR_S)
        await kit.advance(60)
        await juliet.say("/notifications", other)
        assert "No news." in await juliet.hear("news")
        await juliet.say("/drop-notification all", other)
        assert await juliet.hear("dropped") == "1 notification dropped."
