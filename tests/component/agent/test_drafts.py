"""Drafts: what people see of an answer while the model writes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.agent import drafts, sentences
from component.agent.completions import readable
from component.agent.drafts import Draft
from component.agent.protocol import ToolResult, Voice
from component.agent.requests import Reply
from component.agent.untrusted_text import Fence
from component.models.protocol import Completion, ModelRequest, OnText, Void
from tests.component.agent.world import Brain, World, answered, call, message, says

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(drafts, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Shown:
    """A voice that keeps the drafts."""

    def __init__(self) -> None:
        self.drafts: list[Reply] = []
        self.stream = True

    def draft(self, reply: Reply) -> bool:
        if self.stream:
            self.drafts.append(reply)
        return self.stream

    @property
    def texts(self) -> list[str]:
        return [reply.text for reply in self.drafts]


def a_draft(voice: Shown, begun: Callable[[], None] = lambda: None) -> Draft:
    as_voice: Voice = voice  # type: ignore[assignment]  # all of it that is used
    draft = Draft(message("t"), as_voice, begun)
    draft.begin("", str)
    return draft


def test_drafts_come_at_a_bounded_pace(clock: Clock) -> None:
    voice = Shown()
    draft = a_draft(voice)
    for number in range(100):  # ten seconds
        clock.now = 100.0 + number / 10
        draft.wrote(f"{number} ")
    assert [text.split()[-2] for text in voice.texts] == ["20", "50", "80"]
    first, *others = voice.drafts
    assert (first.id, first.corrects) == ("t.draft", "")
    assert [reply.corrects for reply in others] == ["t.draft", "t.draft"]
    assert len({reply.id for reply in voice.drafts}) == 3


def test_what_is_void_is_not_shown(clock: Clock) -> None:
    voice = Shown()
    draft = a_draft(voice)
    draft.wrote("secret reasoning ")
    draft.wrote(Void.WITHDRAWN)
    clock.now += 5
    draft.wrote("Hello there ")
    assert voice.texts == ["Hello there …"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Good evening, Jul", "Good evening, …"),
        ("Word", None),
        ("[[silent]] ", None),
        ("Later [[delay: 3s]] ", None),
        ("Yes, [[sil", "Yes, …"),
        ("See <data-f00 from", "See …"),
        ("x" * 5000 + " ", None),
    ],
)
def test_only_whole_words_of_what_the_person_may_see_are_shown(
    clock: Clock, text: str, shown: str | None
) -> None:
    voice = Shown()
    draft = a_draft(voice)
    clock.now += 5
    draft.wrote(text)
    assert voice.texts == ([] if shown is None else [shown])


WORD = "f00ba4e1c2d3"
PIECES = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            [f"<data-{WORD}", f" from='x'>\n{WORD}", f"</data-{WORD}>", WORD, " ", "<"]
        ),
    ),
    max_size=12,
)


@given(PIECES)
def test_no_draft_has_the_word_of_the_fences(pieces: list[str]) -> None:
    voice, fence = Shown(), Fence(WORD)
    draft = a_draft(voice)
    draft.begin("", lambda text: readable(fence, text))
    for piece in "".join(pieces):
        draft._due = 0.0
        draft.wrote(piece)
    assert not any(WORD in text for text in voice.texts)


def streaming(world: World, clock: Clock, answers: list[Completion]) -> None:
    """Let the model write its answers word by word, one word in a second."""

    async def complete(
        brain: Brain, request: ModelRequest, on_text: OnText | None = None
    ) -> Completion:
        brain.asked.append(request)
        await anyio.lowlevel.checkpoint()
        answer = answers.pop(0)
        for word in answer.text.split(" "):
            clock.now += 1
            if on_text is not None:
                on_text(f"{word} ")
        await anyio.lowlevel.checkpoint()
        return answer

    complete_of: Any = complete
    world.brain.complete = complete_of.__get__(world.brain)  # type: ignore[method-assign]


LONG = "It was the nightingale and not the lark that pierced"


async def test_the_answer_corrects_its_drafts(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    world.ear.shows_drafts = True
    streaming(world, clock, [says(LONG), says("Yes.")])
    async with world.life() as conversations:
        await conversations.received(message("1"))
        await world.settled()
        await conversations.received(message("2"))
        await world.settled()
    assert [draft.id.partition("-")[0] for draft in world.ear.drafted] == ["1.draft"] * 3
    long, short = world.ear.said
    assert (long.id, long.text, long.corrects) == ("1.answer", LONG, "1.draft")
    assert (short.text, short.corrects) == ("Yes.", "")


async def test_without_drafts_nothing_is_shown_before_the_answer(
    tmp_path: Path, clock: Clock
) -> None:
    world = World(tmp_path)
    streaming(world, clock, [says(LONG)])
    async with world.life() as conversations:
        await conversations.received(message("1"))
        await world.settled()
    assert world.ear.drafted == []
    assert world.ear.said[0].corrects == ""


async def test_the_answer_after_a_kill_corrects_the_draft_from_before(
    tmp_path: Path, clock: Clock
) -> None:
    world, written = World(tmp_path), anyio.Event()
    world.ear.shows_drafts = True

    async def complete(_request: ModelRequest, on_text: OnText | None = None) -> Completion:
        assert on_text is not None
        clock.now += 5
        on_text("It was the ")
        written.set()
        await anyio.sleep_forever()
        raise AssertionError

    world.brain.complete = complete  # type: ignore[method-assign]
    async with world.life() as conversations:
        await conversations.received(message("1"))
        await written.wait()
        await anyio.wait_all_tasks_blocked()
        while not await drafted(world):
            await anyio.lowlevel.checkpoint()
    streaming(world, clock, [says("The lark.")])
    async with world.life():
        await world.settled()
    (answer,) = world.ear.said
    assert (answered(answer), answer.text, answer.corrects) == ("1", "The lark.", "1.draft")


async def drafted(world: World) -> bool:
    found = await world.storage.read(lambda db: db.execute("SELECT message FROM turns").fetchall())
    return '"drafted":true' in found[0][0]


async def test_a_stopped_turn_leaves_no_draft(tmp_path: Path, clock: Clock) -> None:
    world, written = World(tmp_path), anyio.Event()
    world.ear.shows_drafts = True

    async def complete(_request: ModelRequest, on_text: OnText | None = None) -> Completion:
        assert on_text is not None
        clock.now += 5
        on_text("It was the ")
        written.set()
        await anyio.sleep_forever()
        raise AssertionError

    world.brain.complete = complete  # type: ignore[method-assign]
    async with world.life() as conversations:
        request = message("1")
        await conversations.received(request)
        await written.wait()
        await conversations.stop(request.session)
    (end,) = world.ear.said
    assert (end.text, end.corrects) == (sentences.STOPPED, "1.draft")


async def test_an_answer_that_is_silent_leaves_no_draft(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    world.ear.shows_drafts = True
    streaming(world, clock, [says(LONG, call("look")), says("[[silent]]")])
    async with world.life() as conversations:
        await conversations.received(message("1"))
        await world.settled()
    (end,) = world.ear.said
    assert (end.text, end.corrects) == (sentences.NOTHING_MORE, "1.draft")


async def test_a_draft_of_a_turn_that_waits_says_so(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    world.ear.shows_drafts = True
    streaming(world, clock, [says(LONG, call("order")), says("It is here.")])
    async with world.life() as conversations:
        await conversations.received(message("1"))
        await world.ear.hears(1)
        task = "task-1-c-order"
        world.shop.tasks[task] = ToolResult("done")
        await world.ended(task)
        await world.settled()
    waits, answer = world.ear.said
    assert (waits.text, waits.corrects) == (sentences.STILL_AT_IT, "1.draft")
    assert (answer.text, answer.corrects) == ("It is here.", "1.draft")


async def test_the_answer_of_the_service_corrects_a_draft(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    world.ear.shows_drafts = True
    streaming(world, clock, [says(LONG), says(LONG)])
    streamed = world.brain.complete

    async def fails(request: ModelRequest, on_text: OnText | None = None) -> Completion:
        await streamed(request, on_text)
        raise ValueError("broken")

    world.brain.complete = fails  # type: ignore[method-assign]
    async with world.life() as conversations:
        await conversations.received(message("1"))
        await world.settled()
    (end,) = world.ear.said
    assert (end.text, end.corrects) == (sentences.BROKE, "1.draft")
