"""What a worker says of a call arrives as it was said, or is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.workers.messages import (
    Asked,
    CallMessage,
    Declined,
    Stopped,
    encode,
    read_call,
    read_outcome,
)
from component.features.workers.queue import lane_of
from component.sandbox.messages import Failure, Result
from component.skills.errors import SkillUnavailable
from component.skills.outputs import File, Link, Output, SkillResult
from component.skills.spec import spec_fields

PARTS = st.one_of(
    st.builds(Output, st.text(), st.just("text/plain"), st.none() | st.text()),
    st.builds(File, st.binary(), st.just("image/png"), st.none() | st.text()),
    st.builds(Link, st.text(), st.none(), st.none() | st.text()),
)
RESULTS = st.builds(
    SkillResult,
    st.lists(PARTS, max_size=4).map(tuple),
    st.booleans(),
    taints=st.none() | st.just(()) | st.just(("web", "person")),
)
OUTCOMES = st.one_of(
    RESULTS.map(Result.of),
    st.builds(Failure, st.sampled_from(("load", "failed", "memory")), st.text()),
    st.builds(Asked, st.text(), st.text(), st.binary(), st.none() | st.just(1.5)),
    st.builds(Declined, st.text()),
    st.builds(Stopped, st.booleans(), st.booleans(), st.text()),
)


@given(RESULTS)
def test_a_result_arrives_as_it_was(result: SkillResult) -> None:
    read = read_outcome(encode(Result.of(result)))
    assert isinstance(read, Result)
    assert read.result() == result


@given(OUTCOMES)
def test_each_outcome_arrives_as_it_was(outcome: object) -> None:
    assert read_outcome(encode(outcome)) == outcome


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_an_outcome_of_a_worker_or_refused(data: bytes) -> None:
    try:
        read_outcome(data)
    except SkillUnavailable as error:
        assert "cannot be read" in str(error)  # noqa: PT017 - few of the examples are outcomes


def test_a_call_arrives_as_it_was() -> None:
    call = CallMessage("a", b"{}", 10, "k", "a@b", "a@b/c", records={".step": ("1", None)})
    assert read_call(encode(call)) == call
    with pytest.raises(ValueError, match="missing required field"):
        read_call(encode({"skill": "a"}))


def test_each_version_and_queue_has_a_lane_of_its_own() -> None:
    lanes = {lane_of("a", "1"), lane_of("a", "2"), lane_of("b", "1")}
    assert len(lanes) == 3
    assert all(len(lane) == 32 for lane in lanes)


def test_a_description_of_another_release_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown"):
        spec_fields('{"name": "a", "input_schema": {}, "unknown": 1}')
