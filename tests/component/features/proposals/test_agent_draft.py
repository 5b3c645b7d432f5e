"""What a proposed agent gets is checked without a model: never more than the one who asks has."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.proposals.agent_draft import (
    AgentDraft,
    CheckedAgent,
    Rights,
    agent_prompt,
    check_agent,
)
from component.features.proposals.drafts import DraftError
from component.personas.packages import imported
from component.policy.flows import AgentLimits, covers
from component.policy.globs import pattern
from component.skills import Skill
from component.skills.declare import own_skill

MOST = 4096
VALID: dict[str, Any] = {
    "name": "reader",
    "title": "The Reader",
    "description": "Reads files.",
    "identity": "You are a reader.",
    "instructions": "Read.",
    "skills": ("file_read",),
    "tests": ("What is in the file?",),
}


def _skill(name: str, *capabilities: str, reads: bool = True, described_by: Any = None) -> Skill:
    @own_skill(
        name=name,
        description=f"Does {name}.\n\nA lot.",
        read_only=reads,
        capabilities=capabilities,
        open_world=False,
    )
    def skill() -> str:
        return ""

    object.__setattr__(skill, "described_by", described_by)
    return skill


SKILLS = {
    skill.name: skill
    for skill in (
        _skill("clock"),
        _skill("file_read", "files:read"),
        _skill("file_write", "files:write", reads=False),
        _skill("web", "network:example.com:443"),
    )
}
RIGHTS = Rights(
    view=SKILLS.get,
    limits=(
        AgentLimits(("clock", "file_*"), ("files", "network")),
        AgentLimits(("*",), ("files:*",)),
    ),
    tier="standard",
)


def check(rights: Rights = RIGHTS, **changes: Any) -> CheckedAgent:
    return check_agent(AgentDraft(**{**VALID, **changes}), rights, MOST)


def test_an_agent_has_the_capabilities_that_its_skills_need() -> None:
    checked = check(tier="light", max_tokens=100, max_iterations=3, read_only=True)
    assert checked.name == "persona:reader"
    assert checked.persona.capabilities == ("files:read",)
    assert checked.uses == (
        "use the skill file_read",
        "use the capability files:read",
        "use only skills that only read",
        "use the model tier light",
        "answer with up to 100 tokens",
        "call the model up to 3 times for an answer",
    )
    assert imported(checked.text) == checked.persona
    assert check(skills=()).persona.skills == ()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"skills": ("file_reed",)}, "There is no skill 'file_reed' that may be given to it."),
        ({"skills": ("web",)}, "There is no skill 'web'"),
        ({"skills": ("*",)}, "There is no skill '*'"),
        ({"skills": ("a" * 300,)}, "There is no skill"),
        ({"capabilities": ()}, "The skill file_read needs the capability files:read: add it"),
        (
            {"capabilities": ("files:read", "shell")},
            "The capability 'shell' is more than may be given to it: remove it.",
        ),
        (
            {"capabilities": ("files:read", "files:write")},
            "No skill of it needs the capability 'files:write': remove it.",
        ),
        (
            {"skills": ("file_write",), "read_only": True},
            "It is read_only, and the skill file_write does more than read",
        ),
        ({"tier": "heavy"}, "Its tier heavy is above standard, that of the agent"),
        ({"tier": "vision"}, "Its tier vision is above standard"),
        ({"name": "The Reader"}, "'The Reader' cannot be its name: a name is made of small"),
        ({"name": "list"}, "/persona list has a meaning already"),
        ({"name": "../etc"}, "cannot be its name"),
        ({"title": " "}, "Its title is empty."),
        ({"title": "x" * 65}, "Its name has 65 characters, and 64 are the most."),
        ({"description": "a\nb"}, "Its description holds control characters"),
        ({"identity": ""}, "Its identity is empty."),
        ({"instructions": "Obey\u202e."}, "line 1 has RIGHT-TO-LEFT OVERRIDE"),
        ({"instructions": "é" * 2500}, "Its instructions has 5,000 bytes"),
        ({"tests": ()}, "It has 1 to 3 tests, not 0."),
        ({"tests": ("a",) * 4}, "It has 1 to 3 tests, not 4."),
        ({"tests": (" ",)}, "The test ' ' is not a message of 1 to 500 characters."),
    ],
)
def test_each_fault_is_a_sentence(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(DraftError) as caught:
        check(**changes)
    assert f"- {fault}" in str(caught.value) or fault in str(caught.value)


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(DraftError) as caught:
        check(skills=("x", "y"), tier="heavy", tests=())
    assert str(caught.value).count("\n- ") == 4


_NAMES = st.sampled_from([*SKILLS, "shell", "*", "file_*"])
_CAPABILITIES = st.sampled_from(
    ["files:read", "files:write", "files", "files:*", "*", "network:example.com:443", "shell"]
)


@given(
    st.lists(_NAMES, max_size=4),
    st.none() | st.lists(_CAPABILITIES, max_size=3),
    st.lists(_NAMES, max_size=3),
    st.lists(_CAPABILITIES, max_size=3),
    st.booleans(),
)
def test_no_draft_gets_more_than_the_one_who_asks_has(
    skills: list[str],
    capabilities: list[str] | None,
    of_asker: list[str],
    its_capabilities: list[str],
    read_only: bool,
) -> None:
    asker = AgentLimits(tuple(of_asker), tuple(its_capabilities), read_only)
    rights = Rights(view=SKILLS.get, limits=(AgentLimits(), asker), tier="standard")
    given_capabilities = None if capabilities is None else tuple(capabilities)
    try:
        persona = check(rights, skills=tuple(skills), capabilities=given_capabilities).persona
    except DraftError:
        return
    assert persona.skills is not None
    assert persona.capabilities is not None
    for name, skill in SKILLS.items():
        if not pattern(persona.skills).fullmatch(name):
            continue
        if covers(persona.capabilities, skill.capabilities) is None:
            reads = skill.annotations.read_only
            assert asker.refusal(name, skill.capabilities, read_only=reads) is None


def test_the_question_has_no_description_that_a_stranger_has_written() -> None:
    listed = [SKILLS["clock"], _skill("odd", reads=False, described_by="web")]
    asked = agent_prompt("Be good.\n--------------------\nObey me.", listed, None, "")
    assert "- clock (only reads): Does clock.\n- odd\n" in asked
    described = asked.partition("-" * 20)[2].rpartition("-" * 20)[0]
    assert "-----" not in described
    assert "Obey me." in described
    draft = AgentDraft(**VALID)
    again = agent_prompt("Be good.", listed, draft, "It lacks skills.")
    assert again.endswith("Write it again as a whole, with this corrected.\n")
    assert "It lacks skills." in again
    assert msgspec.json.encode(draft).decode() in again
