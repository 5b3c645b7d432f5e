"""Replay records on disk: answers as they are kept, and what a later request finds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from component.tasks import changes, expiry, replay
from component.tasks.changes import Change
from component.tasks.replay import decode_answer, encode_answer
from component.tasks.request import RequestKey
from tests.component.tasks.ledger import NOON, Ledger
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import Failure
from xep.stanza_error import StanzaError

NAMED = RequestKey("n", "content")
UNNAMED = RequestKey("u", "u", named=False)


def result(text: str) -> Result:
    return Result(skill="s", outputs=(Output(name="o", text=text),))


@pytest.mark.parametrize(
    "answer",
    [
        result("<&>"),
        Accepted(task="t", retain_until=datetime(2026, 1, 1, tzinfo=UTC), poll_after=5),
        errors.timed_out(repeatable=False),
        errors.invalid_param("a'b", "is <odd>"),
        errors.busy(7),
    ],
)
def test_answers_are_kept_as_they_were(answer: Any) -> None:
    back = decode_answer(encode_answer(answer))
    if isinstance(answer, StanzaError):
        assert isinstance(back, StanzaError)
        assert back.encode() == answer.encode()
    else:
        assert back == answer


def recorded(database: Ledger, key: RequestKey, owner: str, **more: Any) -> Any:
    window = 3_600_000 if key.named else 60_000
    return replay.record(
        *(database, key),
        replay.NewRecord(
            principal="ann@a.example", expires=database.steady + window, owner=owner, **more
        ),
    )


def test_a_record_holds_for_its_window_and_is_replaced_afterwards() -> None:
    for key, window in ((NAMED, 3_600_000), (UNNAMED, 60_000)):
        database = Ledger()
        assert recorded(database, key, "one") is None
        database.now += window - 1
        found = recorded(database, key, "two")
        assert (found.owner, found.left_ms) == ("one", 1)
        database.now += 1
        assert replay.find(database, key.text) is None
        assert recorded(database, key, "two") is None
        found = replay.find(database, key.text)
        assert found is not None
        assert (found.owner, found.left_ms) == ("two", window)


@pytest.mark.parametrize("key", [NAMED, UNNAMED])
def test_the_record_of_an_open_task_outlasts_its_window_only_under_a_name(key: RequestKey) -> None:
    database = Ledger()
    database.add("t", state="running")
    assert recorded(database, key, "one", task="t") is None
    database.now = NOON + 4_000_000
    found = replay.find(database, key.text)
    assert (found is not None) is key.named
    assert (recorded(database, key, "two") is None) is not key.named


def test_what_began_before_does_not_write_into_the_record_of_a_later_request() -> None:
    """The first request runs for more than a minute; the same IQ is new work by then."""
    database = Ledger()
    recorded(database, UNNAMED, "one")
    database.now = NOON + 60_000
    recorded(database, UNNAMED, "two")
    replay.answer_record(database, UNNAMED, NOON + 60_000, result("first"))
    found = replay.find(database, UNNAMED.text)
    assert found is not None
    assert (found.owner, found.answer) == ("two", None)
    replay.answer_record(database, UNNAMED, NOON + 120_000, result("second"))
    found = replay.find(database, UNNAMED.text)
    assert found is not None
    assert found.answer == encode_answer(result("second"))


def test_records_without_a_name_are_deleted_before_their_task() -> None:
    database = Ledger()
    database.add("t", state="running")
    for key in (NAMED, UNNAMED):
        recorded(database, key, "one", task="t")
    database.now = NOON + 4_000_000
    expiry.forget(database)
    keys = database.execute("SELECT key FROM replay").fetchall()
    assert keys == [("n",)]
    assert database.execute("SELECT count(*) FROM tasks").fetchone() == (1,)


def test_the_answer_of_a_task_is_that_of_its_record() -> None:
    database = Ledger()
    database.add("t-1")
    assert recorded(database, NAMED, "one", task="t-1") is None
    assert replay.answer_of(database, "t-1") is None
    replay.accept_record(database, "t-1", Accepted(task="t-1", poll_after=5))
    text = replay.answer_of(database, "t-1")
    assert text is not None
    assert decode_answer(text) == Accepted(task="t-1", poll_after=5)


def test_a_request_whose_task_ended_otherwise_is_answered_with_that_end() -> None:
    database = Ledger()
    database.add("t-1")
    row = database.row()
    late = Failure(conditions=(errors.DeadlineExpired(),))
    wanted = result("done")

    def answer(state: Any, detail: Any) -> Any:
        return changes.ended_with(Change(msgspec.structs.replace(row, state=state), detail), wanted)

    assert answer("completed", result("other")) == result("other")
    assert answer("failed", late).encode() == errors.deadline_expired().encode()
    assert answer("failed", Failure()) == wanted
    assert answer("rejected", late) == wanted
    unknown = changes.ended_with(Change(row))
    assert isinstance(unknown, StanzaError)
    assert unknown.encode() == errors.outcome_unknown().encode()
