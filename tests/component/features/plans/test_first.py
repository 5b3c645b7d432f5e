import json
from pathlib import Path

import pytest
from component.skills.context import Context
from component.skills.declare import skill
from tests.kit.model import Script, call
from tests.kit.service import service

pytestmark = pytest.mark.anyio
JULIET = "juliet@capulet.example"

@pytest.fixture
def anyio_backend():
    from trio.testing import MockClock
    return ("trio", {"clock": MockClock(autojump_threshold=0)})


DONE: list[str] = []


@skill(open_world=False, destructive=False, read_only=False)
def note(text: str) -> str:
    """Note a text."""
    DONE.append(text)
    return f"noted {text}"

@skill(open_world=False, destructive=True)
def erase(text: str) -> str:
    """Erase a text."""
    DONE.append("-" + text)
    return f"erased {text}"


async def test_a_plan_runs(tmp_path: Path) -> None:
    plan = {"title": "Two notes", "goal": "Note twice", "steps": [
        {"id": "one", "kind": "call", "skill": "note", "params": {"text": "a"}},
        {"id": "two", "kind": "call", "skill": "note", "params": {"text": "{one.text} b"}, "after": ["one"]},
        {"id": "three", "kind": "call", "skill": "erase", "params": {"text": "c"}, "after": ["two"]},
    ]}
    model = Script(call("plan_start", plan=plan), "I have begun.")
    async with service(tmp_path, model=model, skills=[note, erase]) as kit:
        juliet = kit.peer(f"{JULIET}/balcony")
        print(await juliet.ask("please note twice") if hasattr(juliet, "ask") else None)
        await kit.advance(10)
        print(await juliet.ask("yes"))
        await kit.advance(15)
        print(await juliet.ask("yes"))
        await kit.advance(15)
        for d, s in kit.stanzas: print(d, s[:1500])
        print(DONE)
    assert 0
