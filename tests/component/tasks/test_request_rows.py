"""The request of a task in its row: what is stored, and what earlier releases have stored."""

from datetime import UTC

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from component.skills.params import TextParam
from component.tasks.request import Request, SkillCall, call_of
from xep.binding import encode
from xep.fluux_agent.execute import Earlier, Execute, Param, Params

_TEXT = st.text("abc", min_size=1, max_size=3)


@given(
    st.builds(
        SkillCall,
        skill=_TEXT,
        params=st.lists(st.builds(TextParam, _TEXT, _TEXT), max_size=2).map(tuple),
        json=st.sampled_from([None, msgspec.Raw(b'{"a":1}')]),
        mode=st.sampled_from(["auto", "inline", "async"]),
        request=st.none() | _TEXT,
        deadline=st.none() | st.datetimes(timezones=st.just(UTC)),
        priority=st.sampled_from(["low", "normal", "high"]),
        context=st.none() | _TEXT,
        thread=st.none() | _TEXT,
        earlier=st.lists(_TEXT, max_size=2).map(tuple),
    )
)
def test_a_row_keeps_all_but_the_parameters_and_the_name(call: SkillCall) -> None:
    stored = Request(call=call.without_params(), arguments=msgspec.Raw(b"{}")).encoded()
    read = msgspec.json.decode(stored, type=Request).asked
    assert read == msgspec.structs.replace(call, params=(), json=None, request=None)


def test_rows_of_earlier_releases_hold_an_element() -> None:
    execute = Execute(
        skill="report",
        mode="async",
        thread="t",
        priority="low",
        earlier=(Earlier(task="e"),),
        params=(Param(name="topic", text="rivers"),),
        json_params=Params(json=msgspec.Raw(b'{"years":[2024]}')),
    )
    stored = msgspec.json.encode({"execute": encode(execute), "arguments": {}, "id": "r-1"})
    read = msgspec.json.decode(stored, type=Request)
    assert read.id == "r-1"
    assert read.asked == call_of(execute)
    assert read.asked.earlier == ("e",)
    assert read.asked.params == (TextParam("topic", "rivers"),)
    assert bytes(read.asked.json or b"") == b'{"years":[2024]}'
