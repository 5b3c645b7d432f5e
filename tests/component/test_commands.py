"""The words after a slash command: what they become, and what is said of those that fit nothing."""

import contextlib
import shlex
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.commands import AnyOutline, CommandError, NoParams, Outline, read_words, split_words


class Looking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    place: str
    state: Literal["open", "closed"] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    quick: bool = False


class Searching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    where: str = ""
    words: tuple[str, ...] = ()


class Importing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    what: str = ""
    toml: str = ""


class Sought(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is sought.

    Args:
        person: Whom it is for,
            and nobody else.
    """

    person: str = msgspec.field(name="for", default="")


class SoughtAll(Sought, frozen=True, forbid_unknown_fields=True):
    """Everything that is sought.

    Args:
        number: Not shown.
    """

    number: Annotated[int, msgspec.Meta(title="How many", description="At most so many.")] = 1
    rest: bool = False


LOOK = Outline(name="look", title="Look", about="look", params=Looking)
SEARCH = Outline(name="search", title="Search", about="search", params=Searching)
NOTHING = Outline(name="ping", title="Ping", about="ping", params=NoParams)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("here", Looking("here")),
        ("here open 5", Looking("here", "open", 5)),
        ("  here\tstate=open\nlimit=5 ", Looking("here", "open", 5)),
        ("limit=5 place=here", Looking("here", limit=5)),
        ("'here and there' quick=true", Looking("here and there", quick=True)),
        ('place="a=b c" quick=1', Looking("a=b c", quick=True)),
        ("place=", Looking("")),
        ("“here and there”", Looking("here and there")),
        ("„hier und da“", Looking("hier und da")),
        ("„tu i tam”", Looking("tu i tam")),
        ("« ici et là »", Looking("ici et là")),
        ("»hier und da«", Looking("hier und da")),
        ("‘what’s new’", Looking("what’s new")),  # noqa: RUF001 - what phones write
        ('place=‚hier und "da"‘', Looking('hier und "da"')),  # noqa: RUF001 - what phones write
        ("「ここ と そこ」 limit=5", Looking("ここ と そこ", limit=5)),
    ],
)
def test_words_become_parameters(text: str, expected: Looking) -> None:
    assert read_words(LOOK, text) == expected


class Sorting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: tuple[str, ...] = ()
    by: str = ""


SORT = Outline(name="sort", title="Sort", about="sort", params=Sorting)


def test_a_list_takes_all_that_is_left_and_what_comes_after_it_is_named() -> None:
    assert read_words(SORT, "a b c") == Sorting(("a", "b", "c"))
    assert read_words(SORT, "a b by=name") == Sorting(("a", "b"), "name")
    assert read_words(SORT, "by=name") == Sorting((), "name")
    assert read_words(SEARCH, "a b c d") == Searching("a", ("b", "c", "d"))
    assert read_words(SEARCH, "words=b words=c") == Searching("", ("b", "c"))
    assert read_words(SEARCH, "") == Searching()
    assert read_words(NOTHING, " ") == NoParams()


@pytest.mark.parametrize(
    ("text", "said", "param"),
    [
        ("", "place: is required.", "place"),
        ("here ajar", "state: expected one of closed, open.", "state"),
        ("here limit=0", "limit: expected an integer >= 1.", "limit"),
        ("here limit=many", "limit: expected an integer.", "limit"),
        ("here limit=1 limit=2", "limit: was given more than once.", "limit"),
        (
            "here colour=red",
            "/look has no 'colour': its parameters are place, state, limit, quick.",
            "colour",
        ),
        ("here open 5 true more", "'more' is one word too many for /look", None),
        ("a b c d e", "quick. Put text with spaces in quotation marks.", None),
        ("state=open here", "'here' comes after state=…", None),
        ("what's new", "A quotation mark or a backslash before 'new' is incomplete", None),
        ("here\\", "A quotation mark or a backslash before 'here\\\\' is incomplete", None),
        ("here open 5 true " + "x" * 9_999, "… is one word too many", None),
    ],
)
def test_the_word_that_is_wrong_is_named(text: str, said: str, param: str | None) -> None:
    with pytest.raises(CommandError) as caught:
        read_words(LOOK, text)
    assert said.removeprefix("…") in str(caught.value)
    assert caught.value.param == param
    assert len(str(caught.value)) < 300


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_follows_the_verbatim_word_is_taken_as_it_stands(text: str) -> None:
    outline = Outline(name="x", title="X", about="x", params=Importing, verbatim={"import": "toml"})
    assert read_words(outline, f"IMPORT \n{text}") == Importing("import", text.lstrip())
    assert read_words(outline, "important toml=x") == Importing("important", "x")


def test_who_takes_nothing_says_so() -> None:
    with pytest.raises(
        CommandError, match="'now' is one word too many for /ping: it has no parameters"
    ):
        read_words(NOTHING, "now")


@given(st.builds(Looking, st.text(), st.sampled_from(["open", "closed"]), st.integers(1, 100)))
def test_whatever_is_quoted_comes_back(wanted: Looking) -> None:
    # The marks of phones count as quotes, so they cannot stand for themselves.
    if not {"\N{LEFT DOUBLE QUOTATION MARK}", "\N{RIGHT DOUBLE QUOTATION MARK}"} & {*wanted.place}:
        given_ = {"place": wanted.place, "state": wanted.state, "limit": str(wanted.limit)}
        line = " ".join(shlex.quote(f"{name}={value}") for name, value in given_.items())
        assert read_words(LOOK, line) == wanted


@given(
    st.text() | st.lists(st.sampled_from([*"'\"\\= \n", "a", "limit", "place=", "“"])).map("".join)
)
def test_anything_is_read_or_refused_in_a_sentence(text: str) -> None:
    for outline in (LOOK, SEARCH, NOTHING):
        said = refusal(outline, text)
        assert said is None or (said.endswith(".") and said.isprintable())
    with contextlib.suppress(CommandError):
        assert all(isinstance(word, str) for word in split_words(text))


def refusal(outline: AnyOutline, text: str) -> str | None:
    try:
        read_words(outline, text)
    except CommandError as error:
        return str(error)
    return None


def test_the_docstring_of_the_parameters_describes_them_unless_their_types_do() -> None:
    schema = Outline(name="all", title="All", about="all", params=SoughtAll).schema
    assert schema["description"] == "Everything that is sought."
    shown = {name: dict(list(each.items())[:2]) for name, each in schema["properties"].items()}
    assert shown == {
        "for": {"title": "Person", "description": "Whom it is for, and nobody else."},
        "number": {"title": "How many", "description": "At most so many."},
        "rest": {"title": "Rest", "type": "boolean"},
    }
