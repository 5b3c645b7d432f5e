"""Nobody outside can lengthen a log line, or forge one."""

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from component import logs
from component.logs import MAX_EXCEPTION, MAX_LINE, MAX_VALUE, exception_text, shortened, visible
from tests.logs import restored_logs

FORGED = "2026-11-22 12:00:00 [info     ] approved by admin"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with restored_logs():
        yield


def written(style: logs.Format, *, error: BaseException | None = None, **values: Any) -> str:
    """What is written of one event, by us and by a library."""
    stream = io.StringIO()
    logs.configure("info", style, stream)
    if error is None:
        structlog.get_logger("component.test").info("said", **values)
    else:
        structlog.get_logger("component.test").error("failed", exc_info=error, **values)
        logging.getLogger("library").error("failed", exc_info=error)
    return stream.getvalue()


def caused() -> BaseException:
    error = ValueError(f"of a peer\n{FORGED}\x1b[2J")
    error.__cause__ = KeyError(f"x\r\n{FORGED}")
    error.add_note(f"note\n{FORGED}")
    return ExceptionGroup(f"group\n{FORGED}", [error])


@pytest.mark.parametrize("style", ["human", "json"])
def test_no_text_of_an_exception_begins_a_line(style: logs.Format) -> None:
    text = written(style, error=caused())
    assert "\x1b" not in text
    assert text.count("approved by admin") >= 8
    told_lines = text.split("\n")
    if style == "json":
        told_lines = [
            line for one in told_lines if one for line in json.loads(one)["exception"].split("\n")
        ]
    assert not [line for line in told_lines if line.lstrip(" |+-").startswith(FORGED)]


def test_lines_of_a_traceback_are_indented_for_people() -> None:
    try:
        endless(0)
    except RecursionError as caught:
        error = caught
    lines = written("human", error=error).rstrip("\n").split("\n")
    begun = [line for line in lines if not line.startswith("  ")]
    assert ["[error" in line or line.startswith("Traceback") for line in begun] == [True] * 4


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


class Odd:
    def __repr__(self) -> str:
        return f"odd\n{FORGED}"


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("style", ["human", "json"])
@pytest.mark.parametrize(
    "value",
    [
        *("x" * 200_000, ["x" * 200_000], {"x": "y" * 200_000}, b"\xff" * 200_000, deep(900)),
        *(deep(100_000), Odd(), [Odd()], Broken(), 10**5000, "\ud800", {"a": deep(500)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_makes_one_line_of_a_bounded_length(style: logs.Format, value: Any) -> None:
    text = written(style, value=value)
    assert len(text) < 7 * MAX_VALUE  # JSON writes six characters for one that is not ASCII
    assert text.count("\n") == 1
    assert text[:-1].isprintable()


@pytest.mark.parametrize("style", ["human", "json"])
def test_many_long_values_make_one_line_of_a_bounded_length(style: logs.Format) -> None:
    text = written(style, **{f"value{number}": "x" * 50_000 for number in range(100)})
    assert len(text) < 2 * MAX_LINE
    assert "50000 characters" in text


def endless(number: int) -> int:
    return other(number + 1)


def other(number: int) -> int:
    return endless(number + 1)


@pytest.mark.parametrize("style", ["human", "json"])
def test_a_recursion_error_is_bounded(style: logs.Format) -> None:
    try:
        endless(0)
    except RecursionError as error:
        text = written(style, error=error)
    assert "RecursionError" in text
    assert len(text) < 3 * MAX_EXCEPTION


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RecursionError


def test_an_exception_that_cannot_be_shown_is_named() -> None:
    assert "UnspeakableError" in exception_text(UnspeakableError())


@given(st.text(max_size=300), st.integers(0, 200))
def test_what_is_shortened_fits_and_what_fits_stays(text: str, most: int) -> None:
    cut = shortened(text, most)
    assert len(cut) <= most
    assert len(text) > most or cut == text
    assert visible(text).isprintable()


# In the journal of systemd.


def in_journal(path: Path, monkeypatch: pytest.MonkeyPatch, style: logs.Format = "auto") -> TextIO:
    """Return a stream that the journal reads, by what the environment says."""
    stream = path.open("w+", encoding="utf-8")
    found = os.fstat(stream.fileno())
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
    logs.configure("debug", style, stream)
    return stream


def lines_of(stream: TextIO) -> list[str]:
    stream.seek(0)
    return stream.read().splitlines()


def test_lines_of_the_journal_begin_with_their_priority_and_have_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_journal(tmp_path / "journal", monkeypatch) as stream:
        log = structlog.get_logger("component.test")
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)("said", who="juliet")
        logging.getLogger("library").critical("broken")
        assert lines_of(stream) == [
            "<7>[debug    ] said [component.test] who='juliet'",
            "<6>[info     ] said [component.test] who='juliet'",
            "<4>[warning  ] said [component.test] who='juliet'",
            "<3>[error    ] said [component.test] who='juliet'",
            "<2>[critical ] broken [library]",
        ]


def test_an_exception_is_one_line_of_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_journal(tmp_path / "journal", monkeypatch) as stream:
        error = ValueError(f"wrong\n<0>{FORGED}")
        structlog.get_logger("component.test").error("failed", exc_info=error)
        (line,) = lines_of(stream)
    assert line.startswith("<3>")
    assert "ValueError: wrong" in line


def test_the_journal_gets_json_if_the_settings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_journal(tmp_path / "journal", monkeypatch, "json") as stream:
        structlog.get_logger("component.test").info("said")
        (line,) = lines_of(stream)
    assert line.startswith("<6>{")
    assert json.loads(line[3:]).keys() == {"event", "level", "logger"}


def test_a_stream_that_the_journal_does_not_read_is_written_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        in_journal(tmp_path / "journal", monkeypatch),
        (tmp_path / "file").open("w+", encoding="utf-8") as other,
    ):
        logs.configure("info", "auto", other)
        structlog.get_logger("component.test").info("said")
        assert "timestamp" in json.loads(lines_of(other)[0])
