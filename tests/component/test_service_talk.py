"""How an agent is for a person: by its declaration, and by the persona that it has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from component.agent.profile import Profile
from component.commands.definition import Asking, NoParams
from component.memory.lines import SessionKey
from component.service.remembering import Memories, remembering
from component.service.talk import Talk
from component.settings import Server, Settings
from component.settings.agents import AgentEntry
from component.settings.llm import LLM, ModelChoice
from component.settings.memory import Memory
from component.storage import Storage
from tests.component.audit.book import Book
from xep.jid import JID

pytestmark = pytest.mark.anyio

ALICE = JID.parse("alice@a.example")
SKILLS = ("web_fetch", "web_search", "note_search", "clock")
AGENTS = (
    AgentEntry(name="assistant"),
    AgentEntry(name="reader", persona="searcher", skills=("web_*", "clock")),
    AgentEntry(name="idle", persona="quiet"),
    AgentEntry(name="cheap", tier="light"),
    AgentEntry(
        name="expert",
        title="Doctor",
        llm=ModelChoice(provider="openai", model="its-own"),
        temperature=0.3,
        max_iterations=7,
        capabilities=("web",),
        spawn=False,
    ),
)
PACKAGES = {
    "searcher": 'tier = "heavy"\nskills = ["*_search", "shell"]',
    "quiet": "skills = []",
    "plain": "",
}


@pytest.mark.parametrize(
    ("agent", "persona", "skills", "tier"),
    [
        ("assistant", None, ("*",), "standard"),
        ("assistant", "searcher", ("*_search", "shell"), "heavy"),
        ("reader", None, ("web_search",), "heavy"),
        ("reader", "plain", ("web_*", "clock"), "standard"),
        ("idle", None, (), "standard"),
    ],
)
async def test_a_persona_gives_no_skills_that_its_agent_was_not_given(
    tmp_path: Path,
    storage: Storage,
    agent: str,
    persona: str | None,
    skills: tuple[str, ...],
    tier: str,
) -> None:
    async with talking(tmp_path, storage) as (talk, memories):
        if persona is not None:
            await memories.personas.choose(agent, ALICE, persona)
        profile = await talk.profile(SessionKey(agent, ALICE))
        assert isinstance(profile, Profile)
        assert (profile.skills, profile.tier) == (skills, tier)
        chosen = await memories.personas.active(agent, ALICE)
        assert profile.identity == ("" if chosen is None else f"You are {chosen.id}.")


@pytest.mark.parametrize(
    ("agent", "persona", "model"),
    [
        ("assistant", None, "main"),
        ("assistant", "searcher", "big"),
        ("cheap", None, "small"),
        ("cheap", "searcher", "big"),
        ("expert", None, "its-own"),
        ("expert", "plain", "its-own"),
        ("expert", "searcher", "big"),
    ],
)
async def test_an_agent_uses_the_model_that_it_is_declared_with(
    tmp_path: Path, storage: Storage, agent: str, persona: str | None, model: str
) -> None:
    async with talking(tmp_path, storage) as (talk, memories):
        if persona is not None:
            await memories.personas.choose(agent, ALICE, persona)
        profile = await talk.profile(SessionKey(agent, ALICE))
        assert isinstance(profile, Profile)
        assert talk.model(profile.tier, profile.model_of).name == model
        (status,) = [one for one in talk.commands() if one.name == "status"]
        asking = Asking(principal=ALICE, at=JID(agent, "agent.example", None))
        assert f"Model: {model}." in (await status.run(asking, NoParams())).text


async def test_what_else_an_agent_is_declared_with(tmp_path: Path, storage: Storage) -> None:
    async with talking(tmp_path, storage) as (talk, _):
        profile = await talk.profile(SessionKey("expert", ALICE))
        assert isinstance(profile, Profile)
        assert (profile.title, profile.temperature, profile.max_iterations) == ("Doctor", 0.3, 7)
        assert (profile.capabilities, profile.spawn) == (("web",), False)


@asynccontextmanager
async def talking(tmp_path: Path, storage: Storage) -> AsyncIterator[tuple[Talk, Memories]]:
    tiers = {
        tier: ModelChoice(provider="openai", model=model)
        for tier, model in (("heavy", "big"), ("light", "small"))
    }
    settings = Settings(
        server=Server(component_domain="agent.example", component_secret="s"),  # type: ignore[arg-type]
        llm=LLM(provider="openai", model="main", api_key="k", tiers=tiers),  # type: ignore[arg-type]
        memory=Memory(path=tmp_path / "memory"),
        agents=AGENTS,
    )
    for name, defaults in PACKAGES.items():
        folder = tmp_path / "memory" / "personas" / name
        folder.mkdir(parents=True)
        text = f'[persona]\nid = "{name}"\n[persona.defaults]\n{defaults}\n'
        (folder / "persona.toml").write_text(text)
        (folder / "identity.md").write_text(f"You are {name}.")
    nobody: Any = None
    async with remembering(settings, Book()) as memories:
        talk = Talk(
            settings,
            storage,
            "home",
            memories,
            tools=nobody,
            names=lambda _: SKILLS,
            voice=nobody,
            recorder=Book(),
            observer=nobody,
            alert=nobody,
            connected_since=lambda: None,
        )
        await talk.agents.load()
        yield talk, memories
