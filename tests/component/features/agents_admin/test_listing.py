"""People see which agents they can use, with what each can do, costs and may."""

from pathlib import Path

import pytest

from component.memory_directory.layout import Layout, SessionKey
from tests.kit import Script, anyio_backend, call, service
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET, ROMEO = "juliet@capulet.example/balcony", "romeo@capulet.example/garden"
NURSE = "nurse@capulet.example/kitchen"
SETTINGS = """
[agent]
notice = ""
admins = ["nurse@capulet.example"]
[personas]
allow_user_personas = true
[[personas.restrictions]]
jid = "romeo@capulet.example"
allowed = ["nobody"]
[budgets.per_principal]
usd = 1.5
[[agents]]
name = "assistant"
skills = ["time", "echo", "memory_*", "agents"]
capabilities = ["memory:read"]
[[agents]]
name = "clerk"
title = "The Clerk"
description = "Deletes."
skills = ["time", "memory_forget"]
budget = { tokens = 5000 }
[[policy.rules]]
skills = ["echo"]
allowed_jids = ["juliet@capulet.example"]
confirm = "always"
"""
MENTOR = """
[persona]
id = "mentor"
name = "Mentor"
description = "Teaches."
icon = "M"
[persona.defaults]
tier = "heavy"
skills = ["time", "echo", "memory_forget"]
[persona.restrictions]
capabilities = []
read_only = true
max_iterations = 2
"""


def write_persona(root: Path, manifest: str, folder: Path | None = None) -> None:
    """Write the package of a persona, for everybody unless it is in a folder of somebody."""
    id_ = manifest.partition('id = "')[2].partition('"')[0]
    package = (folder or Layout(root).personas) / id_
    package.mkdir(parents=True)
    (package / "persona.toml").write_text(manifest)
    (package / "identity.md").write_text("You teach.")


async def test_each_person_sees_what_she_can_use(tmp_path: Path) -> None:
    memory = tmp_path / "data" / "memory"
    hers = Layout(memory).own_personas(SessionKey("assistant", JID.parse(JULIET).bare))
    write_persona(memory, MENTOR)
    write_persona(memory, '[persona]\nid = "muse"\n[persona.defaults]\nskills = []\n', hers)
    async with service(tmp_path, SETTINGS, model=Script(usd_per_token=2e-6)) as kit:
        juliet, romeo, nurse = kit.peer(JULIET), kit.peer(ROMEO), kit.peer(NURSE)
        cost = "scripted (tier {}), 2 USD per million tokens read and 2 USD written"
        budget = "at most 1.5 USD a day for you"
        listed = await juliet.ask("/agents", "/persona and a name")
        assert listed.splitlines()[:-1] == [
            "- Assistant (assistant@agent.capulet.example)",
            "  can: agents, echo, memory_recall, memory_search, time",
            f"  costs: {cost.format('standard')}; {budget}",
            "  may: memory:read; asks you before echo",
            "- The Clerk (clerk@agent.capulet.example): Deletes.",
            "  can: memory_forget, time",
            f"  costs: {cost.format('standard')}; {budget}, 5,000 tokens a day for this agent",
            "  may: memory:write; asks you before memory_forget",
            "- muse (/persona muse, yours)",
            "  can: talk only",
            f"  costs: {cost.format('standard')}; {budget}",
            "  may: nothing outside itself",
            "- M Mentor (/persona mentor): Teaches.",
            "  can: echo, time",
            f"  costs: {cost.format('heavy')}; {budget}",
            "  may: only reads; asks you before echo",
        ]
        shown = await juliet.ask("/agents Mentor", "Teaches")
        assert "- echo: Return the text that was given, unchanged. (asks you first)" in shown
        his = await romeo.ask("/agents", "/persona and a name")
        assert "echo" not in his
        assert "persona m" not in his
        await nurse.ask("/kill-agent clerk", "clerk is killed")
        assert "Clerk" not in await romeo.ask("/agents", "/persona and a name")
        seen = await nurse.ask("/agents", "/persona and a name")
        assert "(assistant@agent.capulet.example, created)" in seen
        assert "- The Clerk (clerk@agent.capulet.example, killed): Deletes." in seen
        assert "no agent or persona called 'muse'" in await romeo.ask("/agents muse", "muse")


async def test_a_model_lists_agents_and_a_persona_only_takes_rights_away(tmp_path: Path) -> None:
    write_persona(tmp_path / "data" / "memory", MENTOR)
    steps = (call("agents"), "I can echo.", call("memory_search"), "I cannot.")
    model = Script(*steps)
    async with service(tmp_path, SETTINGS, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("What can you do?", "I can echo.")
        result = model.requests[1].messages[-1].text
        assert "- The Clerk (clerk@agent.capulet.example): Deletes.\n  can: memory_forget" in result
        assert "- M Mentor (/persona mentor): Teaches.\n  can: echo, time\n" in result
        await juliet.ask("/persona mentor", "I am now")
        await juliet.ask("What do you know?", "I cannot.")
        calls, after = model.requests[2:]
        assert sorted(tool.name for tool in calls.tools) == ["echo", "spawn_agent", "time"]
        assert "There is no tool of this name." in after.messages[-2].text
        assert after.tool_choice == "none", "the second call of the model has to be the answer"
