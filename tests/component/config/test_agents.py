"""Agents are declared by names of their own; what is wrong with them has one sentence."""

from typing import Any

import pytest

from tests.component.smallest_settings import SMALLEST


def test_two_agents_of_one_name_are_told_apart(problems: Any) -> None:
    (problem,) = problems(SMALLEST + '[[agents]]\nname = "a"\n[[agents]]\nname = "a"\n')
    assert "two agents called 'a'" in problem


@pytest.mark.parametrize("name", ["", "A", "a b", "a@b", "a/b"])
def test_the_name_of_an_agent_is_a_localpart(problems: Any, name: str) -> None:
    (problem,) = problems(SMALLEST + f'[[agents]]\nname = "{name}"\n')
    assert "the part of an address before the @" in problem


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[loop]\nsame_tool = 8", "line 5: loop.same_tool was removed: only the same call"),
        ("[loop]\nping_pong = 4", "delete the line"),
        ("[budget]\ntokens = 1", "line 4: budget is not a setting; did you mean budgets?"),
        (
            "[budgets]\ntokens = 1",
            "line 5: budgets.tokens is not a setting; did you mean budgets.p",
        ),
        (
            "[[agents]]\nname = 'a'\nmodel = 'm'",
            "line 6: agents[0].model is not a setting; did you mean agents.llm.model?",
        ),
        ("[budgets]\nalert = 80", "line 5: budgets.alert must be less than 1, and is 80"),
        ("[agents]\nname = 'a'", "line 4: agents must be a list of tables, each under [[agents]]"),
        ("[memory.scopes]\nname = 'a'", "must be a list of tables, each under [[memory.scopes]]"),
        ("[[agents]]\nname = 'a'\nskills = 'b'", 'a list, such as ["memory_*", "report"]'),
        (
            "[[policy.flows]]\nof = ['net']\nto = ['*']\nthen = 'refuse'",
            "line 5: policy.flows[0].of[0] must be 'peer', 'web', 'file' or 'room'",
        ),
        (
            "[llm]\nprovider = 'local'\n[llm.tiers.huge]\nprovider = 'local'",
            "llm.tiers.huge is not a known name: must be 'light', 'standard', 'heavy' or 'vi",
        ),
        (
            "[llm]\nprovider = 'vllm'\nmodel = 'm'\nbase_url = 'localhost:8000'",
            "line 7: llm.base_url must be an http or https address, such as http://",
        ),
        (
            "[llm]\nprovider = 'ollama'\nmodel = 'm'\nhost = 'localhost'",
            "line 7: llm.host must be an http or https address, such as http://",
        ),
    ],
)
def test_mistakes_about_agents_are_told_once_and_with_the_mend(
    problems: Any, text: str, sentence: str
) -> None:
    (problem,) = problems(f"{SMALLEST}{text}\n")
    assert sentence in problem
