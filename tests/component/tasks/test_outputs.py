"""Results that are too large are refused by their lengths, before they are converted or encoded."""

from typing import Any

import msgspec
import pytest

from component.skills import File, Output, skill
from component.tasks import outputs
from tests.component.tasks.world import Open, living
from xep.fluux_agent.errors import TooBig
from xep.fluux_agent.execute import Output as WireOutput

pytestmark = pytest.mark.anyio

MOST = 1_000


@pytest.mark.parametrize(
    "made",
    ["x" * (MOST + 1), File(b"x" * (MOST + 1), "a/b"), [Output("x" * 600), Output("y" * 600)]],
    ids=["text", "file", "together"],
)
async def test_a_result_that_is_too_large_is_not_encoded(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch, made: object
) -> None:
    def encodes(*_: object) -> None:
        raise AssertionError("it was converted")

    @skill(name="large", read_only=True)
    def large() -> Any:
        return made

    monkeypatch.setattr(outputs, "result_of", encodes)
    async with living(open_storage, large, result_bytes=MOST) as world:
        ended = await world.ear.ended(await world.task("large"))
        assert ended.failure is not None
        assert ended.failure.conditions == (TooBig(limit=MOST),)


def test_people_are_shown_json_only_where_there_is_nothing_else() -> None:
    text, data = WireOutput(name="text", text="A title."), WireOutput(name="data", text="{}")
    data = msgspec.structs.replace(data, type="application/json")
    empty = WireOutput(name="empty", text=" ")
    assert outputs.texts_of((text, data, empty)) == ["A title."]
    assert outputs.texts_of((data, empty)) == ["{}"]
    assert outputs.texts_of(()) == []
