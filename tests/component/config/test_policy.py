"""Who the agent is."""

from typing import Any

import pytest

from tests.component.smallest_settings import SMALLEST


@pytest.mark.parametrize("name", ["a < b", "a\\u0007b"])
def test_a_name_that_cannot_be_shown_is_refused(problems: Any, name: str) -> None:
    (problem,) = problems(SMALLEST + f'[agent]\nname = "{name}"\n')
    assert "agent.name" in problem
    assert "is shown to people" in problem


@pytest.mark.parametrize(
    "contact", ["it@example.com", "javascript:alert(1)", "mailto:", "xmpp: a@b", "https://[", "x:"]
)
def test_a_contact_is_a_uri(problems: Any, contact: str) -> None:
    (problem,) = problems(SMALLEST + f'[agent]\ncontact = "{contact}"\n')
    assert "agent.contact must be a URI such as xmpp:admin@example.com" in problem


def test_a_notice_with_an_unknown_placeholder_is_refused(problems: Any) -> None:
    (problem,) = problems(SMALLEST + '[agent]\nnotice = "I am {nmae}."\n')
    assert (
        "agent.notice contains {nmae}; only {contact}, {name}, {operator} are replaced" in problem
    )
