"""Circles are noticed, told once, and then ended."""

from hypothesis import given
from hypothesis import strategies as st

from component.agent.guard import Guard, Limits, canonical
from component.models.protocol import ToolCall

LIMITS = Limits(max_iterations=50, same_tool=5, ping_pong=3, same_call=3)


def rounds(guard: Guard, *names: str) -> list[str]:
    """Judge a round for each name; the arguments are always new."""
    return [
        guard.judge([ToolCall("1", name, f'{{"n": {number}}}')]).verdict
        for number, name in enumerate(names)
    ]


def test_the_same_tool_in_a_row_is_told_and_then_ended() -> None:
    assert rounds(Guard(LIMITS), *"aaaaaa") == ["go on"] * 4 + ["tell", "end"]


def test_another_tool_between_ends_the_row() -> None:
    assert set(rounds(Guard(LIMITS), *"aaaabaaaacaaaa")) == {"go on"}


def test_two_tools_in_turn_are_told_and_then_ended() -> None:
    assert rounds(Guard(LIMITS), *"abababa") == ["go on"] * 5 + ["tell", "end"]


def test_the_same_call_is_found_however_it_is_written_and_whatever_is_between() -> None:
    guard = Guard(LIMITS)
    verdicts = []
    for number, arguments in enumerate(('{"a":1,"b":2}', '{"b": 2, "a": 1}', ' {"a":1,"b":2}')):
        verdicts.append(guard.judge([ToolCall("1", "x", arguments)]))
        guard.judge([ToolCall("1", f"other-{number}", "{}")])
    assert [judged.verdict for judged in verdicts] == ["go on", "go on", "tell"]
    assert "x 3 times" in verdicts[-1].pattern


def test_many_calls_at_once_are_one_step() -> None:
    guard = Guard(LIMITS)
    calls = [ToolCall(str(n), "fetch", f'{{"page":{n}}}') for n in range(20)]
    assert guard.judge(calls).verdict == "go on"


def test_the_last_call_of_the_model_is_known_before_it() -> None:
    guard = Guard(Limits(max_iterations=3))
    seen = []
    for _ in range(3):
        seen.append(guard.last)
        guard.asked += 1
    assert seen == [False, False, True]


CALLS = st.lists(
    st.builds(
        ToolCall,
        st.just("1"),
        st.sampled_from("ab"),
        st.sampled_from(['{"x":1}', '{"x": 1}', "{}", "not json", '{"x":2}']),
    ),
    min_size=1,
    max_size=3,
)


@given(st.lists(CALLS, max_size=30))
def test_verdicts_come_in_their_order(script: list[list[ToolCall]]) -> None:
    guard, again = Guard(LIMITS), Guard(LIMITS)
    verdicts = [guard.judge(calls).verdict for calls in script]
    told = [verdict for verdict in verdicts if verdict != "go on"]
    assert told == (["tell"] + ["end"] * (len(told) - 1) if told else [])
    assert guard.told == bool(told)
    # What was judged before a crash is judged alike after it.
    assert [again.judge(calls).verdict for calls in script] == verdicts


@given(st.lists(CALLS, min_size=LIMITS.same_call * 10, max_size=60))
def test_no_script_of_few_calls_runs_for_ever(script: list[list[ToolCall]]) -> None:
    guard = Guard(LIMITS)
    assert "end" in [guard.judge(calls).verdict for calls in script]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_the_canonical_form_forgets_order_and_white_space(value: object, wide: bool) -> None:
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


def test_deep_arguments_are_taken() -> None:
    assert canonical("[" * 100_000)
