"""Calls with new results are progress; repetitions lead to warnings, which become more explicit."""

from hypothesis import given
from hypothesis import strategies as st

from component.agent.completions import Guard, canonical
from component.models.messages import ToolCall

SAME_CALL = 3


def guard(max_iterations: int = 50) -> Guard:
    return Guard(max_iterations, SAME_CALL)


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall("1", name, arguments)


def test_twenty_fetches_of_different_pages_are_progress() -> None:
    one = guard()
    for page in range(20):
        assert one.judge([call("fetch", f'{{"page":{page}}}')], [f"page {page}"]) == ""


def test_the_same_call_with_other_results_is_progress() -> None:
    one = guard()
    assert [one.judge([call("status")], [f"{done} % done"]) for done in range(20)] == [""] * 20


def test_two_alternating_tools_with_new_results_are_progress() -> None:
    one = guard()
    for number in range(20):
        assert one.judge([call("read" if number % 2 else "write")], [str(number)]) == ""


def test_warnings_of_the_same_call_with_the_same_result_become_more_explicit() -> None:
    one = guard()
    warnings = [one.judge([call("look")], ["nothing"]) for _ in range(6)]
    assert warnings[:2] == ["", ""]
    assert "called look 3 times with the same arguments and the same result" in warnings[2]
    assert "warned before" in warnings[3]
    assert "warning number 3" in warnings[4]
    assert len(set(warnings[2:])) == 4
    assert one.warnings == 4


def test_the_same_call_is_detected_in_any_notation_and_order() -> None:
    one = guard()
    warnings = []
    for number, arguments in enumerate(('{"a":1,"b":2}', '{"b": 2, "a": 1}', ' {"a":1,"b":2}')):
        warnings.append(one.judge([call("x", arguments)], ["same"]))
        assert one.judge([call(f"other-{number}")], ["same"]) == ""
    assert warnings[:2] == ["", ""]
    assert "x 3 times" in warnings[2]


def test_the_same_call_several_times_in_one_answer_is_one_repetition() -> None:
    one = guard()
    assert one.judge([call("x")] * 5, ["same"] * 5) == ""


def test_a_call_that_waits_for_a_task_is_not_a_repetition() -> None:
    one = guard()
    assert [one.judge([call("order")], [None]) for _ in range(5)] == [""] * 5


def test_the_last_call_of_the_model_is_known_before_it() -> None:
    one = guard(3)
    seen = []
    for _ in range(3):
        seen.append(one.last)
        one.asked += 1
    assert seen == [False, False, True]


ROUNDS = st.lists(
    st.lists(
        st.tuples(
            st.builds(call, st.sampled_from("ab"), st.sampled_from(['{"x":1}', '{"x": 1}', "no"])),
            st.sampled_from(["one", "two", None]),
        ),
        min_size=1,
        max_size=3,
    ),
    max_size=30,
)


@given(ROUNDS)
def test_calls_before_a_crash_are_judged_alike_after_it(
    rounds: list[list[tuple[ToolCall, str | None]]],
) -> None:
    def judged(one: Guard) -> list[str]:
        return [one.judge(*map(list, zip(*made, strict=True))) for made in rounds]  # type: ignore[arg-type]

    warnings = judged(guard())
    assert judged(guard()) == warnings
    told = [warning for warning in warnings if warning]
    assert len(set(told)) >= min(len(told), 3), "each says more than the one before"


@given(st.integers(0, 30))
def test_a_loop_is_always_detected(repetitions: int) -> None:
    one = guard()
    warnings = [one.judge([call("look")], ["nothing"]) for _ in range(repetitions)]
    assert sum(map(bool, warnings)) == max(0, repetitions - SAME_CALL + 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_the_canonical_form_has_no_order_and_white_space(value: object, wide: bool) -> None:
    import json

    def turned(one: object) -> object:
        if isinstance(one, dict):
            return {key: turned(one[key]) for key in reversed(one)}
        return [turned(each) for each in one] if isinstance(one, list) else one

    plain = json.dumps(value)
    assert canonical(json.dumps(turned(value), indent=2 if wide else None)) == canonical(plain)
    assert json.loads(canonical(plain)) == value


@given(st.text())
def test_any_text_has_a_canonical_form(arguments: str) -> None:
    assert isinstance(canonical(arguments), bytes)


def test_deep_arguments_are_accepted() -> None:
    assert canonical("[" * 100_000)
