import contextlib
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.config.describe import toml
from component.config.toml_file import (
    ExpansionError,
    escape,
    expand,
    expand_all,
    line_of,
    lines_of_keys,
)

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
plain = st.text().filter(lambda text: "$" not in text)
values = st.text()


@given(st.lists(st.tuples(plain, names, values)), plain)
def test_each_reference_becomes_its_value_and_the_rest_stays(
    parts: list[tuple[str, str, str]], tail: str
) -> None:
    variables = {name: value for _, name, value in parts}
    text = "".join(f"{before}${{{name}}}" for before, name, _ in parts) + tail
    wanted = "".join(before + variables[name] for before, name, _ in parts) + tail
    assert expand(text, variables) == wanted


@given(st.one_of(st.text(), st.text(alphabet="${}AB:-")))
def test_escaped_text_comes_back_unchanged(text: str) -> None:
    assert expand(escape(text), {}) == text


@given(st.text(alphabet="${}AB:-_ "))
def test_any_text_expands_or_says_why_not(text: str) -> None:
    if "${" not in text:
        assert expand(text, {}) == text
    else:
        with contextlib.suppress(ExpansionError):
            expand(text, {"A": "x"})


@pytest.mark.parametrize(
    ("variables", "wanted"), [({}, "localhost"), ({"H": ""}, "localhost"), ({"H": "x"}, "x")]
)
def test_a_default_stands_in_for_a_missing_or_empty_variable(
    variables: dict[str, str], wanted: str
) -> None:
    assert expand("${H:-localhost}", variables) == wanted


def test_an_empty_variable_without_default_is_empty() -> None:
    assert expand("<${H}>", {"H": ""}) == "<>"


def test_what_a_variable_holds_is_not_expanded_again() -> None:
    assert expand("${A}", {"A": "${B}", "B": "x"}) == "${B}"


def test_all_missing_variables_are_named() -> None:
    with pytest.raises(ExpansionError, match=r"uses \$\{A\} and \$\{B\}, which is not set"):
        expand("${A} ${B} ${A}", {})


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A", "${A-B}", "${A B}"])
def test_a_broken_reference_shows_how_to_write_one(text: str) -> None:
    with pytest.raises(ExpansionError, match=r"write \$\{NAME\}"):
        expand(text, {"A": "x"})


def test_strings_are_expanded_at_any_depth_and_failures_have_their_path() -> None:
    failed: list[tuple[tuple[str | int, ...], str]] = []
    tree = {"a": ["${A}", {"b": "${NO}"}], "n": 5, "${A}": True}
    assert expand_all(tree, {"A": "x"}, lambda *failure: failed.append(failure)) == {
        "a": ["x", {"b": "${NO}"}],
        "n": 5,
        "${A}": True,
    }
    assert failed == [(("a", 1, "b"), "uses ${NO}, which is not set")]


bare = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,5}", fullmatch=True)
texts = st.one_of(st.text(max_size=9), st.text(alphabet="\"'\\#=[]a", max_size=9))
scalars = st.one_of(st.integers(), st.booleans(), texts, st.lists(texts, max_size=3))


@given(st.dictionaries(bare, st.dictionaries(bare, scalars, min_size=1, max_size=4), max_size=4))
def test_every_key_of_a_plain_file_is_found_on_its_line(
    tables: dict[str, dict[str, object]],
) -> None:
    written, wanted = [], {}
    for table, keys in tables.items():
        written.append(f"[{table}]")
        wanted[(table,)] = len(written)
        for key, value in keys.items():
            written.append(f"{key} = {toml(value)}")
            wanted[(table, key)] = len(written)
    text = "\n".join(written)
    assert tomllib.loads(text) == tables
    found = lines_of_keys(text)
    assert {path: found[path] for path in wanted} == wanted


@given(st.text(alphabet="[]\"'=.#ab\\ \n\r\u2028"))
def test_no_text_makes_it_raise(text: str) -> None:
    lines_of_keys(text)


def test_arrays_of_tables_dotted_keys_and_long_strings() -> None:
    text = '''
server.host = "x"
[[policy.rules]]
skills = """
fake = 1
"""
[[ policy . rules ]]
"skills" = ["a"]
'''
    lines = lines_of_keys(text)
    assert lines["server", "host"] == 2
    assert lines["policy", "rules", 0, "skills"] == 4
    assert lines["policy", "rules", 1, "skills"] == 8
    assert not any("fake" in path for path in lines)


def test_quotes_within_strings_and_comments_open_nothing() -> None:
    text = """a = "'''" # '''
b = "\\\"" # it's
c = ['', "", ""]
d = 1
"""
    assert lines_of_keys(text) == {("a",): 1, ("b",): 2, ("c",): 3, ("d",): 4}


def test_a_key_that_is_not_there_has_the_line_of_what_holds_it() -> None:
    lines = lines_of_keys("[server]\nport = 1\n")
    assert line_of(("server", "host"), lines) == 1
    assert line_of(("agent",), lines) is None
