import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from component import logs
from tests.logs import restored_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with restored_logs():
        yield
    logging.getLogger("httpx2").setLevel(logging.NOTSET)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_pipe_gets_one_json_object_a_line() -> None:
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    structlog.get_logger("component.connection").info("connected", host="a\nb")
    logging.getLogger("library").warning("odd %s", "thing\nhere")
    ours, theirs = lines(stream)
    assert (ours["event"], ours["host"]) == ("connected", "a\nb")
    assert ours["logger"] == "component.connection"
    assert (ours["level"], theirs["level"]) == ("info", "warning")
    assert (theirs["event"], theirs["logger"]) == ("odd thing\nhere", "library")
    assert str(ours["timestamp"]).endswith("Z")


def test_the_level_holds_for_rooms_and_libraries() -> None:
    stream = io.StringIO()
    logs.configure("warning", stream=stream)
    log, library = structlog.get_logger(), logging.getLogger("library")
    for say in (log.info, library.info, log.warning, library.warning):
        say("x")
    assert [line["level"] for line in lines(stream)] == ["warning", "warning"]


def test_debug_lets_everything_through() -> None:
    stream = io.StringIO()
    logs.configure("debug", stream=stream)
    structlog.get_logger().debug("x")
    logging.getLogger("library").debug("x")
    assert [line["level"] for line in lines(stream)] == ["debug", "debug"]


def test_requests_by_http_are_told_to_those_who_look_for_faults_alone() -> None:
    stream = io.StringIO()
    client = logging.getLogger("httpx2")
    logs.configure("info", stream=stream)
    client.info("HTTP Request: POST http://127.0.0.1:1/v1/chat/completions")
    assert lines(stream) == []
    logs.configure("debug", stream=stream)
    client.info("HTTP Request: POST http://127.0.0.1:1/v1/chat/completions")
    logs.configure("error", stream=stream)
    client.warning("the pool is full")
    assert [line["level"] for line in lines(stream)] == ["info"]


def test_people_read_lines_without_columns_of_blanks() -> None:
    stream = io.StringIO()
    logs.configure("info", "human", stream)
    structlog.get_logger("component.connection").info("connected", host="a")
    assert stream.getvalue().endswith("connected [component.connection] host='a'\n")


def test_a_terminal_gets_colours_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = Terminal()
    logs.configure(stream=coloured)
    structlog.get_logger().info("connected", host="a")
    assert "\x1b[" in coloured.getvalue()

    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    logs.configure(stream=plain)
    structlog.get_logger().info("connected", host="a")
    assert "\x1b" not in plain.getvalue()
    assert "connected" in plain.getvalue()

    as_json = Terminal()
    logs.configure(format="json", stream=as_json)
    structlog.get_logger().info("connected")
    assert lines(as_json)[0]["event"] == "connected"


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_nobody_can_break_a_line_or_reach_the_terminal_from_outside(text: str) -> None:
    stream = io.StringIO()
    logs.configure(format="human", stream=stream)
    structlog.get_logger().info("received", text=text)
    logging.getLogger("library").warning("%s", text)
    first, second, rest = stream.getvalue().split("\n")
    assert first.isprintable()
    assert second.isprintable()
    assert rest == ""


@pytest.mark.parametrize("style", ["human", "json"])
def test_secrets_do_not_get_through(style: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure(format=style, stream=stream)
    hidden = "geheim"
    structlog.get_logger().info(
        "x", component_secret=hidden, API_KEY=hidden, password=hidden, held=SecretStr(hidden)
    )
    try:
        int("no number")
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed")
    written = stream.getvalue()
    assert written.count("ValueError: invalid literal") == 2
    # The traceback of this very function, whose local variable holds the secret.
    assert "geheim" not in written.replace('hidden = "geheim"', "")


def test_the_last_configuration_counts() -> None:
    log = structlog.get_logger()
    first, second = io.StringIO(), io.StringIO()
    logs.configure(stream=first)
    log.info("one")
    logs.configure(stream=second)
    log.info("two")
    assert [line["event"] for line in lines(first)] == ["one"]
    assert [line["event"] for line in lines(second)] == ["two"]
