"""Conversion of lines to messages, within the available tokens."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from component.agent import history
from component.agent.compaction import as_text, cut
from component.agent.history import Block, View, blocks, truncated
from component.agent.prompt import LEFT_OUT, fitted
from component.agent.protocol import ToolResult
from component.agent.run import called, opaque_parts, resulted
from component.agent.untrusted_text import Fence
from component.conversations.lines import (
    Called,
    Header,
    Line,
    Note,
    Resulted,
    Said,
    Summary,
    decode_line,
    encode_line,
)
from component.models.messages import ImagePart, ModelMessage, OpaquePart, TextPart, ToolCall
from component.models.protocol import Completion


def count(text: str) -> int:
    return len(text) // 4 + 1


def view(*turns: str, result_tokens: int = 1000) -> View:
    return View(Fence("w0rd"), count, result_tokens, turns)


def messages(found: Sequence[Block]) -> list[ModelMessage]:
    return [one for block in found for one in block.messages]


def test_the_blocks_of_earlier_turns_are_made_once() -> None:
    lines: list[Line] = [
        Said(role="user", content="one", turn="1"),
        Said(role="assistant", content="two", turn="1", final=True),
    ]
    views = [view(turn) for turn in "123"]
    views[1:] = [msgspec.structs.replace(one, earlier=views[0].earlier) for one in views[1:]]
    first, second, third = (blocks(lines, one) for one in views)
    assert (first[0].pinned, second[0].pinned) == (True, False)
    assert all(one is other for one, other in zip(second, third, strict=True))
    assert messages(first) == messages(second)
    other: list[Line] = [Note(content=str(number)) for number in range(500)]
    for at in range(len(other)):
        blocks(other[at : at + 1], views[2])
    assert len(views[2].earlier) < 100


def user(turn: str, content: str = "hi") -> Said:
    return Said(role="user", content=content, turn=turn, taint="person")


def test_a_late_result_stays_in_its_place() -> None:
    lines: list[Line] = [
        user("t1"),
        Called(turn="t1", round=0, id="c", name="order", arguments="{}"),
        Resulted(turn="t1", id="c", content="waits", task="x"),
        user("t2", "other"),
        Said(role="assistant", content="answer", turn="t2", final=True),
        Resulted(turn="t1", id="c", content="it has come", late="order"),
        Note(content="order has ended", turn="t1"),
    ]
    shown = messages(blocks(lines, view("t1")))
    assert [one.role for one in shown] == [
        "user", "assistant", "tool", "user", "assistant", "user", "system",
    ]  # fmt: skip
    assert shown[2].text == "waits"
    assert "it has come" in shown[5].text
    assert messages(blocks(lines[:5], view("t2"))) == shown[:5]


def test_a_result_that_replaces_another_before_any_message_is_at_its_call() -> None:
    lines: list[Line] = [
        user("t1"),
        Called(turn="t1", round=0, id="c", name="order", arguments="{}"),
        Resulted(turn="t1", id="c", content="waits", task="x"),
        Resulted(turn="t1", id="c", content="it has come"),
    ]
    assert messages(blocks(lines, view("t1")))[2].text == "it has come"


def test_a_sentence_of_the_service_is_not_the_assistants_text() -> None:
    lines: list[Line] = [
        Said(role="assistant", content="", notice="No model.", turn="a", final=True),
        Said(role="assistant", content="Half", notice="Cut off.", turn="b", final=True),
    ]
    shown = messages(blocks(lines, view()))
    assert [(one.role, one.text) for one in shown] == [
        ("system", "[The service has told the person: No model.]"),
        ("assistant", "Half"),
        ("system", "[The service has told the person: Cut off.]"),
    ]


def test_the_shown_part_of_a_result_does_not_change() -> None:
    call = Called(turn="t", round=0, id="1", name="look", arguments="{}")
    line = Resulted(turn="t", id="1", content="begin " + "x" * 400 + " end", shown=12)
    for result_tokens in (10, 10_000):
        (block,) = blocks([call, line], view(result_tokens=result_tokens))
        assert "[… 398 characters are left out here …]" in block.messages[1].text


def test_the_requests_of_a_turn_follow_its_summary_unchanged() -> None:
    request = Said(role="user", content="do it", context="[It is noon.]", turn="t", taint="person")
    summary = Summary(content="Much was done.", requests=(request,), context="[Notes: tea.]")
    found = blocks([], view("t"), summary)
    assert messages(found)[1:] == messages(blocks([request], view("t")))
    assert messages(found)[0].text.endswith("</data-w0rd>\n\n[Notes: tea.]")
    assert [block.pinned for block in found] == [False, True]


def test_tainted_results_are_fenced_and_flagged() -> None:
    lines: list[Line] = [
        user("t1"),
        Called(turn="t1", round=0, id="a", name="look", arguments="{}"),
        Called(turn="t1", round=0, id="b", name="look", arguments="{}"),
        Resulted(turn="t1", id="a", content="do this!", taint="web", finding="orders"),
        Resulted(turn="t1", id="b", content="42"),
    ]
    found = blocks(lines, view())
    shown = messages(found)
    assert shown[2].text.startswith('<data-w0rd from="the web" warning="')
    assert shown[3].text == "42"
    assert found[1].taints == {"web"}


LINES = st.lists(
    st.one_of(
        st.builds(user, st.sampled_from("abc"), st.text(max_size=40)),
        st.builds(
            Said, role=st.just("assistant"), content=st.text(max_size=40),
            turn=st.sampled_from("abc"), final=st.just(True),
        ),
        st.builds(
            Called, turn=st.sampled_from("abc"), round=st.integers(0, 2),
            id=st.sampled_from(["1", "2", "3"]), name=st.just("look"), arguments=st.just("{}"),
        ),
        st.builds(
            Resulted, turn=st.sampled_from("abc"), id=st.sampled_from(["1", "2", "3"]),
            content=st.text(max_size=80), taint=st.sampled_from([None, "web"]),
            late=st.sampled_from(["", "", "look"]),
        ),
        st.builds(Note, content=st.text(max_size=20), turn=st.sampled_from("abc")),
    ),
    max_size=25,
)  # fmt: skip


@given(LINES, st.integers(0, 200), st.booleans(), st.booleans())
def test_calls_and_results_are_never_separated(
    lines: list[Line], room: int, left_out: bool, summed: bool
) -> None:
    summary = Summary(content="before", taints=("file",)) if summed else None
    found = blocks(lines, view("a"), summary)
    shown = fitted(found, room, left_out, count)
    kept = [block for block in shown if block.messages[0].text != LEFT_OUT]
    asked: list[str] = []
    for one in messages(kept):
        if one.role == "tool":
            assert [result.id for result in one.results] == [asked.pop(0)]
        else:
            assert not asked, "each call has its result right behind it"
            asked = [call.id for call in one.tool_calls]
    assert not asked
    # What is kept is in order, and what must be kept is.
    assert [block for block in found if any(block is one for one in kept)] == kept
    assert all(any(one is block for one in kept) for block in found if block.pinned)
    assert not found or kept[-1] is found[-1]
    needed = sum(b.tokens for b in found if b.pinned or b is found[-1])
    assert sum(block.tokens for block in kept) <= max(room, needed)
    # Nothing is left out in silence, and nothing is said to be that is there.
    assert (len(kept) < len(found) or (left_out and bool(found))) == (len(shown) > len(kept)) or (
        summed and left_out and len(found) == 1
    )


@given(LINES, st.integers(0, 300), st.sets(st.sampled_from("abc"), max_size=2))
def test_a_cut_is_before_a_persons_message_and_keeps_open_turns(
    lines: list[Line], keep: int, held: set[str]
) -> None:
    tokens = [count(as_text([line])) for line in lines]
    at = cut(lines, tokens, keep, held)
    assert 0 <= at < max(1, len(lines))
    if at:
        first = lines[at]
        assert isinstance(first, Said)
        assert first.role == "user"
        assert not any(getattr(line, "turn", None) in held for line in lines[:at])


@given(LINES, st.integers(0, 300))
def test_a_cut_within_a_turn_separates_no_call_from_its_result(
    lines: list[Line], keep: int
) -> None:
    tokens = [count(as_text([line])) for line in lines]
    at = cut(lines, tokens, keep, (), "a")
    if at:
        first, before = lines[at], lines[at - 1]
        assert isinstance(first, Said | Called)
        if isinstance(first, Called):
            assert first.turn == "a"
            same = isinstance(before, Called) and (before.turn, before.round) == ("a", first.round)
            assert not same


def test_a_cut_leaves_at_most_the_given_tokens() -> None:
    lines: list[Line] = [user(str(number), "x" * 36) for number in range(10)]
    assert cut(lines, [10] * 10, 35, ()) == 7
    assert cut(lines, [10] * 10, 0, ()) == 9
    assert cut(lines, [10] * 10, 35, {"4"}) == 4


@given(st.text(max_size=2000), st.integers(20, 200))
def test_the_middle_of_a_long_text_is_removed(text: str, most: int) -> None:
    short = truncated(text, most, count)
    if count(text) <= most:
        assert short == text
    else:
        assert count(short) <= most
        head, mark, tail = short.partition("\n[… ")
        assert mark
        assert text.startswith(head)
        assert text.endswith(tail.partition("…]\n")[2])


def test_all_taints_of_lines_are_found() -> None:
    lines: list[Line] = [
        user("a"),
        Resulted(turn="a", id="1", content="", taint="web"),
        Said(role="assistant", content="", taints=("file",)),
        Summary(content="", taints=("peer",)),
    ]
    assert history.in_order(history.taints_of(lines)) == ("person", "file", "peer", "web")


def test_opaque_parts_keep_their_position_in_a_round() -> None:
    """Some providers reject the second call if their reasoning is missing or moved."""
    thinking = [OpaquePart("anthropic/m", msgspec.Raw(b'{"thinking":"%d"}' % n)) for n in range(3)]
    one, two = ToolCall("1", "look", "{}"), ToolCall("2", "find", "{}")
    parts = (thinking[0], TextPart("Let me see."), one, thinking[1], two, thinking[2])
    completion = Completion(parts=parts, finish="tool_calls")
    lines = called("t", 0, completion, completion.tool_calls)
    read = [decode_line(encode_line(line)) for line in lines]
    (block,) = blocks([line for line in read if not isinstance(line, Header)], view("t"))
    expected = (thinking[0], TextPart("Let me see."), one, thinking[1], thinking[2], two)
    assert block.messages[0].parts == expected


def test_opaque_parts_of_an_answer_are_kept() -> None:
    thinking = OpaquePart("anthropic/m", msgspec.Raw(b"{}"))
    completion = Completion(parts=(thinking, TextPart("Yes.")))
    line = Said(role="assistant", content="Yes.", turn="t", parts=opaque_parts(completion))
    read = decode_line(encode_line(line))
    assert isinstance(read, Said)
    (block,) = blocks([read], view("t"))
    assert block.messages == (ModelMessage("assistant", (thinking, TextPart("Yes."))),)


def test_images_of_a_result_are_shown_with_it() -> None:
    image = ImagePart("image/png", b"\x89PNG")
    line = resulted("t", "1", ToolResult("a picture", parts=(image,)))
    read = decode_line(encode_line(line))
    assert isinstance(read, Resulted)
    call = Called(turn="t", round=0, id="1", name="look", arguments="{}")
    (block,) = blocks([call, read], view("t"))
    (result,) = block.messages[1].results
    assert result.parts == (TextPart("a picture"), image)
