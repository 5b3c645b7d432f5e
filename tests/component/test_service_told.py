"""What an agent tells people by itself is part of their conversations."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit import Kit, Script, anyio_backend, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
NURSE = "nurse@capulet.example/kitchen"
HOUR_S = 3600
SKILLS = '''
from component.skills import Context, SkillError, skill

@skill(read_only=True, open_world=False)
def tide() -> str:
    """Say how high the sea is."""
    return "The tide is high."

@skill(read_only=True)
def news() -> str:
    """Say what others have written."""
    return "The tide is high."

@skill(read_only=True, open_world=False)
def broken() -> str:
    """Fail."""
    raise SkillError("The tide is high.")

@skill(destructive=False, open_world=False, durable=True)
async def walk(context: Context) -> str:
    """Walk to the sea."""
    await context.sleep(600)
    return "The tide is high."
'''
QUESTION = "What did you just tell me?"


def settings(directory: Path, **work: Any) -> dict[str, Any]:
    """Return settings with the skills above, and a schedule that does this work if given."""
    (directory / "skills.py").write_text(SKILLS)
    schedule = {"name": "sea", "when": "every 2 hours", "principal": "juliet@capulet.example"}
    return {
        "skills": {"modules": [str(directory / "skills.py")]},
        "schedule": [schedule | work] if work else [],
        "notifications": {"quiet": ""},
        "memory": {"learn_after_mins": 0},
        "agent": {"notice": ""},
    }


async def told_messages(kit: Kit) -> list[Any]:
    found: list[Any] = await kit.kernel.storage.read(
        lambda db: db.execute("SELECT id FROM told_messages").fetchall()
    )
    return found


@pytest.mark.parametrize(
    ("skill", "start", "origin"),
    [
        ("tide", "", "your message"),
        ("news", "", "the web"),
        ("broken", "The schedule sea failed: ", "your message"),
    ],
)
async def test_the_model_knows_what_a_schedule_has_told(
    tmp_path: Path, skill: str, start: str, origin: str
) -> None:
    model = Script("Hello.", "It is high.", "As I said.")
    async with service(tmp_path, settings(tmp_path, skill=skill), model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("Hi", "Hello.")
        before = [message.text for message in model.requests[-1].messages]
        await kit.jump(2 * HOUR_S + 1)
        assert await juliet.hear("tide") == f"{start}The tide is high."
        await kit.restart(kill=True)
        await juliet.ask(QUESTION, "It is high.")
        await kit.restart(kill=True)
        await juliet.ask("Again?", "As I said.")
        shown = [message.text for message in model.requests[-1].messages]
        assert shown[: len(before)] == before
        (told,) = [text for text in shown if "The tide is high." in text]
        assert shown[3] == told
        assert "2026-11-20 14:00 UTC. A schedule has run " + skill in told
        assert f'from="{origin}">\n{start}The tide is high.' in told
        assert QUESTION in shown[4]
        assert not await told_messages(kit)


async def test_what_is_held_is_not_in_the_conversation_before_it_is_told(tmp_path: Path) -> None:
    model = Script(otherwise="Well.")
    work = settings(tmp_path, skill="tide") | {"notifications": {"quiet": "13:00-15:00"}}
    async with service(tmp_path, work, model=model) as kit:
        juliet = kit.peer(JULIET)
        await kit.jump(2 * HOUR_S + 1)
        await juliet.ask(QUESTION, "Well.")
        assert "The tide is high." not in model.asked
        await kit.jump(1.5 * HOUR_S)
        await juliet.hear("The tide is high.")
        await juliet.ask(QUESTION, "Well.")
        assert "The tide is high." in model.asked


async def test_the_answer_to_a_goal_is_there_once_for_all_who_are_told(tmp_path: Path) -> None:
    model = Script("The tide is high.", otherwise="Well.")
    tell = ["juliet@capulet.example", "nurse@capulet.example"]
    work = settings(tmp_path, goal="Look at the sea.", tell=tell)
    async with service(tmp_path, work, model=model) as kit:
        await kit.jump(2 * HOUR_S + 1)
        for peer, origin in ((kit.peer(JULIET), ""), (kit.peer(NURSE), 'from="the web"')):
            await peer.ask(QUESTION, "Well.")
            assert model.asked.count("The tide is high.") == 1
            assert ("by yourself" in model.asked) == bool(origin)
            assert origin in model.asked


async def test_the_end_of_a_task_that_a_person_has_started_is_in_the_conversation(
    tmp_path: Path,
) -> None:
    model = Script(otherwise="Well.")
    async with service(tmp_path, settings(tmp_path), model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run walk")
        await kit.advance(601)
        assert await juliet.hear("tide") == "The tide is high."
        await juliet.ask(QUESTION, "Well.")
        assert model.asked.count("The tide is high.") == 1


async def test_without_a_model_nothing_is_kept_for_conversations(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path, skill="tide")) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run walk")
        await kit.jump(2 * HOUR_S + 1)
        await kit.advance(1)
        assert [await juliet.hear("tide") for _ in range(2)] == ["The tide is high."] * 2
        assert not await told_messages(kit)
