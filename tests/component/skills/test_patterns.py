"""A pattern that can hold up the event loop is refused when a skill is declared."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import DeclarationError, UsageError, skill
from component.skills.patterns import unfit
from component.skills.schema import object_schema
from component.skills.validation import SchemaValidator


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "^(x+x+)+y$",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        "^(a*)*$",
        "^(a?){50}a{50}$",
        "^(a{1,50}){1,50}$",
        "^(ab|a.)*$",
        "(?i)^(a|[A-Z])*b(a+A+)+$",
        r"^[^@]+@[^@]+\.[^@]+$",  # cubic
        "a+",  # tried from each character on
        r"^(.)\1*$",
        "^(?=a+)b",
        "^(a+|b)*c|(d+)+$",
        "(",
    ],
)
def test_slow_or_invalid_patterns_are_refused(pattern: str) -> None:
    assert unfit(pattern) is not None


@pytest.mark.parametrize(
    ("pattern", "max_length"),
    [
        ("^a+$", None),
        ("^[a-z]+(-[a-z]+)*$", None),
        (r"^\w+@\w+\.\w+$", None),
        (r"^(\d{1,3}\.){3}\d{1,3}$", None),
        (r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2})?$", None),
        ("^#?[0-9a-fA-F]{6}$", None),
        ("[0-9]{3}", None),
        ("^.*$", None),
        ("", None),
        (r"^[^@]+@[^@]+\.[^@]+$", 90),
        ("a+", 500),
        ("^.*foo.*$", 500),
    ],
)
def test_patterns_that_match_in_bounded_time_are_accepted(
    pattern: str, max_length: int | None
) -> None:
    assert unfit(pattern, max_length) is None


_patterns = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "ab", "^", "$", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,5}", "{3}", "{0,30}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@given(pattern=_patterns)
def test_what_is_taken_without_a_bound_takes_few_steps(pattern: str) -> None:
    """Of a model of `re` that counts: it tries one way after the other, as `re` does."""
    if unfit(pattern) is not None:
        return
    for text in ("a" * 40 + "!", "ab" * 20 + "!", "a" * 40, "b" * 40 + "a"):
        steps = _Steps(pattern).search(text)
        assert steps < 60 * (len(text) + 2) * (len(pattern) + 2), (pattern, text, steps)


class _Steps:
    """Matches by backtracking, and counts."""

    def __init__(self, pattern: str) -> None:
        from re import _parser  # type: ignore[attr-defined]

        self.tree = _parser.parse(pattern)
        self.count = 0

    def search(self, text: str) -> int:
        for start in range(len(text) + 1):
            if self._all(list(self.tree), text, start, lambda _: True):
                break
        return self.count

    def _all(self, nodes: list[Any], text: str, at: int, then: Any) -> bool:
        self.count += 1
        if self.count > 100_000:
            raise AssertionError("far too many steps")
        if not nodes:
            return bool(then(at))
        (code, value), rest = nodes[0], nodes[1:]
        name = str(code)

        def go_on(to: int) -> bool:
            return self._all(rest, text, to, then)

        if name == "AT":
            here = at == 0 if "BEGINNING" in str(value) else at == len(text)
            return here and go_on(at)
        if name == "SUBPATTERN":
            return self._all(list(value[-1]), text, at, go_on)
        if name == "BRANCH":
            return any(self._all(list(each), text, at, go_on) for each in value[1])
        if name.endswith("_REPEAT"):
            least, most, body = value
            return self._repeat(least, most, body, text, at, go_on)
        character = text[at : at + 1]
        fits = bool(character) and _fits(code, value, character)
        return fits and go_on(at + 1)

    def _repeat(self, least: int, most: int, body: Any, text: str, at: int, then: Any) -> bool:
        def again(to: int) -> bool:
            if to == at and least <= 0:
                return False
            return self._repeat(max(least - 1, 0), most - 1, body, text, to, then)

        if int(most) > 0 and self._all(list(body), text, at, again):
            return True
        return least <= 0 and bool(then(at))


def _fits(code: Any, value: Any, character: str) -> bool:
    from component.skills.patterns import _is_in

    return _is_in(code, value, character)


def declare(hint: Any) -> None:
    def f(a: Any) -> None: ...

    f.__annotations__["a"] = hint
    skill(name="f")(f)


Bad = Annotated[str, msgspec.Meta(pattern="^(a+)+$")]


class Holds(msgspec.Struct):
    code: Bad
    inner: list[Holds] = []


@pytest.mark.parametrize("hint", [Bad, list[Bad], dict[str, Bad], Bad | None, Holds, list[Holds]])
def test_a_skill_with_such_a_pattern_cannot_be_declared(hint: Any) -> None:
    with pytest.raises(DeclarationError, match=r"parameter 'a' .* has the pattern '\^\(a\+\)\+\$'"):
        declare(hint)


def test_nor_can_a_question_be_asked_with_one() -> None:
    with pytest.raises(UsageError, match="pattern"):
        object_schema(Holds)


def test_length_is_looked_at_before_the_pattern() -> None:
    """Both by msgspec and by the validator of forms and answers."""
    text = "a" * 60 + "!"
    hint = Annotated[str, msgspec.Meta(pattern="^(a+)+$", max_length=20)]
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.convert(text, hint)
    schema = {"type": "string", "pattern": "^(a+)+$", "maxLength": 20}
    reasons = [each.reason for each in SchemaValidator(schema).mismatches(text)]
    assert any("longer than 20" in each for each in reasons)
    found = SchemaValidator(schema).mismatch("b")
    assert found is not None
    assert found.reason == '"b" does not match "^(a+)+$"'


def test_the_model_of_re_counts_what_re_does() -> None:
    with pytest.raises(AssertionError, match="far too many"):
        _Steps("^(a+)+$").search("a" * 40 + "!")
    assert re.search("^a+$", "aaa")
