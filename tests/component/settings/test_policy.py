"""Who the agent is."""

from typing import Any

import pytest

from tests.component.settings.smallest import SMALLEST


@pytest.mark.parametrize("name", ["a < b", "a\\u0007b"])
def test_a_name_that_cannot_be_shown_is_refused(problems: Any, name: str) -> None:
    (problem,) = problems(SMALLEST + f'[agent]\nname = "{name}"\n')
    assert "agent.name" in problem
    assert "is shown to people" in problem
