"""The sections about watches."""

from typing import Any

import pytest

from component.features.watches.settings import ENTRIES
from component.features.watches.watch import watch_of
from tests.component.smallest_settings import SMALLEST

ENTRY = """
[[watch]]
name = "heat"
service = "pubsub.example.com"
node = "sensors"
principal = "juliet@example.com"
skill = "report"
params = {params}
"""


def test_an_entry_becomes_a_watch(read: Any) -> None:
    params = '{ title = "{json.title}", lines = ["{text}", "{not an expression"], count = 2 }'
    (watch,) = map(watch_of, read(SMALLEST + ENTRY.format(params=params))[ENTRIES])
    assert (watch.id, str(watch.service), watch.node) == ("heat", "pubsub.example.com", "sensors")
    work = watch.work_for(b'{"text": "hot", "json": {"title": "a"}}')
    assert bytes(work.params) == b'{"title":"a","lines":["hot","{not an expression"],"count":2}'


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ('{ title = "{json..title}" }', "'json..title' is not valid JMESPath"),
        ('{ rows = [{ title = "{a =}" }] }', "'a =' is not valid JMESPath"),
        ("{ a = " + "[" * 17 + "]" * 17 + " }", "nested more than 16 levels deep"),
    ],
)
def test_parameters_that_can_never_be_filled_stop_the_start(
    problems: Any, params: str, reason: str
) -> None:
    (said,) = problems(SMALLEST + ENTRY.format(params=params))
    assert "watch[0].params cannot be used: " in said
    assert reason in said


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (
            '{ element = "entry//title", exists = true }',
            "'entry//title' is not a path: write local",
        ),
        ('{ element = "entry/title" }', "A condition needs equals, contains, above, below or"),
    ],
)
def test_a_condition_that_can_never_be_met_stops_the_start(
    problems: Any, condition: str, reason: str
) -> None:
    (said,) = problems(f"{SMALLEST}{ENTRY.format(params='{}')}where = [{condition}]\n")
    assert f"watch[0].where[0] cannot be used: {reason}" in said
