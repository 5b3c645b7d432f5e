"""From lines to messages, within the tokens there are."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from component.agent import history
from component.agent.fences import Fence
from component.agent.history import Block, View, blocks, truncated
from component.agent.overflow import cut, fitted, told
from component.memory.lines import Called, Line, Note, Resulted, Said, Summary
from component.models.protocol import ChatMessage


def count(text: str) -> int:
    return len(text) // 4 + 1


def view(*turns: str, result_tokens: int = 1000) -> View:
    return View(
        Fence("w0rd"), lambda text: "orders" if "!" in text else None, count, result_tokens, turns
    )


def messages(found: Sequence[Block]) -> list[ChatMessage]:
    return [one for block in found for one in block.messages]


def user(turn: str, content: str = "hi") -> Said:
    return Said(role="user", content=content, turn=turn, taint="person")


def test_a_late_result_stands_at_its_call() -> None:
    lines: list[Line] = [
        user("t1"),
        Called(turn="t1", round=0, id="c", name="order", arguments="{}"),
        Resulted(turn="t1", id="c", content="waits", task="x"),
        user("t2", "other"),
        Said(role="assistant", content="answer", turn="t2", final=True),
        Resulted(turn="t1", id="c", content="it has come"),
        Note(content="order has ended", turn="t1"),
    ]
    shown = messages(blocks(lines, view("t1")))
    assert [one.role for one in shown] == [
        "user", "assistant", "tool", "user", "assistant", "system",
    ]  # fmt: skip
    assert shown[2].content == "it has come"
    waiting = messages(blocks(lines[:5], view("t2")))
    assert waiting[2].content == "waits"


def test_tainted_results_are_fenced_and_flagged() -> None:
    lines: list[Line] = [
        user("t1"),
        Called(turn="t1", round=0, id="a", name="look", arguments="{}"),
        Called(turn="t1", round=0, id="b", name="look", arguments="{}"),
        Resulted(turn="t1", id="a", content="do this!", taint="web"),
        Resulted(turn="t1", id="b", content="42"),
    ]
    found = blocks(lines, view())
    shown = messages(found)
    assert shown[2].content.startswith('<data-w0rd from="the web" warning="')
    assert shown[3].content == "42"
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
        ),
        st.builds(Note, content=st.text(max_size=20), turn=st.sampled_from("abc")),
    ),
    max_size=25,
)  # fmt: skip


@given(LINES, st.integers(0, 200), st.integers(0, 200), st.booleans())
def test_calls_and_results_are_never_parted(
    lines: list[Line], room: int, earlier: int, summed: bool
) -> None:
    summary = Summary(content="before", taints=("file",)) if summed else None
    found = blocks(lines, view("a"), summary)
    kept = fitted(found, room, earlier)
    asked: list[str] = []
    for one in messages(kept):
        if one.role == "tool":
            assert one.tool_call_id == asked.pop(0)
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
    others = sum(b.tokens for b in kept if not b.own and not b.pinned and b is not found[-1])
    assert others <= max(earlier, 0)


@given(LINES, st.integers(0, 300), st.sets(st.sampled_from("abc"), max_size=2))
def test_a_cut_is_before_what_a_person_said_and_spares_open_turns(
    lines: list[Line], keep: int, held: set[str]
) -> None:
    tokens = [count(told([line])) for line in lines]
    at = cut(lines, tokens, keep, held)
    assert 0 <= at < max(1, len(lines))
    if at:
        first = lines[at]
        assert isinstance(first, Said)
        assert first.role == "user"
        assert not any(getattr(line, "turn", None) in held for line in lines[:at])


def test_a_cut_leaves_what_may_be_kept() -> None:
    lines: list[Line] = [user(str(number), "x" * 36) for number in range(10)]
    assert cut(lines, [10] * 10, 35, ()) == 7
    assert cut(lines, [10] * 10, 0, ()) == 9
    assert cut(lines, [10] * 10, 35, {"4"}) == 4


@given(st.text(max_size=2000), st.integers(20, 200))
def test_the_middle_of_a_long_text_is_cut_out(text: str, most: int) -> None:
    short = truncated(text, most, count)
    if count(text) <= most:
        assert short == text
    else:
        assert count(short) <= most
        head, mark, tail = short.partition("\n[… ")
        assert mark
        assert text.startswith(head)
        assert text.endswith(tail.partition("…]\n")[2])


def test_taints_of_lines_are_all_found() -> None:
    lines: list[Line] = [
        user("a"),
        Resulted(turn="a", id="1", content="", taint="web"),
        Said(role="assistant", content="", taints=("file",)),
        Summary(content="", taints=("peer",)),
    ]
    assert history.in_order(history.taints_of(lines)) == ("person", "file", "peer", "web")
