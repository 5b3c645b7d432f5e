"""Directives in answers, which are for the service and not for the person."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.agent.completions import LONGEST_DELAY_S, Directed, directed


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Hello.", Directed("Hello.")),
        ("  as it is \n", Directed("  as it is \n")),
        ("[[silent]]", Directed("", silent=True)),
        ("[[ SILENT ]]\nnot said", Directed("not said", silent=True)),
        ("[[delay:5s]] Later.", Directed("Later.", delay_s=5)),
        ("Later. [[delay: 1.5m]]", Directed("Later.", delay_s=90)),
        ("[[delay:250ms]]x[[delay:2s]]", Directed("x", delay_s=2)),
        ("[[delay:99999m]] x", Directed("x", delay_s=LONGEST_DELAY_S)),
        ("[[delay:5 days]] [[wiki]]", Directed("[[delay:5 days]] [[wiki]]")),
        ("`[[silent]]` says nothing", Directed("`[[silent]]` says nothing")),
        ("```\n[[silent]]\n```", Directed("```\n[[silent]]\n```")),
        ("```\n[[silent]]", Directed("```\n[[silent]]")),
        ("`a` [[delay:1s]] `[[silent]]`", Directed("`a` `[[silent]]`", delay_s=1)),
        ("[[[silent]]]", Directed("[]", silent=True)),
    ],
)
def test_directives_are_removed(answer: str, expected: Directed) -> None:
    assert directed(answer) == expected


_PIECES = st.sampled_from(
    ["[[silent]]", "[[delay:3s]]", "[[", "]]", "`", "```", "\n", "a b", "[[x]]", "[[delay:", "9m"]
)


@given(st.lists(_PIECES | st.text(max_size=5)).map("".join))
def test_any_text_is_accepted(answer: str) -> None:
    said = directed(answer)
    assert 0 <= said.delay_s <= LONGEST_DELAY_S
    if not said.silent and not said.delay_s:
        assert said.text == answer
    # Nothing is made up: what is said is what was written, less something.
    rest = iter(answer)
    assert all(character in rest for character in said.text)


@given(st.text().filter(lambda text: "[[" not in text))
def test_a_text_without_brackets_is_unchanged(answer: str) -> None:
    assert directed(answer) == Directed(answer)
