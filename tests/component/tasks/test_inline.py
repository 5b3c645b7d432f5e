"""What is answered at once: the same XML as always, and the same answer to a repetition."""

from __future__ import annotations

from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.policy.flows import Flows
from component.skills import Registry, Skill, SkillError, View, skill
from component.skills.calling import Threads, call_inline
from component.skills.params import prepare_texts
from component.tasks import inline
from component.tasks.events import TaskRecords
from component.tasks.gate import Approvers, Gate, SkillAccess
from component.tasks.inline import InlineRequests
from component.tasks.outputs import result_of
from component.tasks.request import SMALL, UNNAMED_WINDOW_S, Request, key_of
from tests.component.tasks.world import AGENT, ANN, BOB, Nobody
from xep.binding import encode, read
from xep.fluux_agent.execute import Execute, Param, Result
from xep.jid import JID
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
params = st.lists(st.tuples(st.sampled_from("abc"), texts), max_size=3)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Service:
    """Inline requests, and how often their skill has run."""

    def __init__(self, *more: Skill) -> None:
        self.runs = 0
        self.clock = Clock()

        @skill(inline=True, read_only=True, open_world=False)
        def add(a: list[str] = [], b: list[str] = [], c: list[str] = []) -> str:  # noqa: B006
            """Join texts."""
            self.runs += 1
            return "".join([*a, *b, *c])

        @skill(inline=True, read_only=True, open_world=False)
        def fail(text: str) -> str:
            """Fail in the way that the text says."""
            self.runs += 1
            if text == "refuse":
                raise SkillError("not now")
            raise ValueError(text)

        self.registry = Registry((add, fail, *more))
        access = SkillAccess(
            find=self.registry.get,
            gate=Gate(lambda _: self._view(), Flows()),
            may_use=lambda _who, _skill: True,
            approvers=cast("Approvers", Nobody()),
            threads=Threads(1, 1),
        )
        self.inline = InlineRequests(access, TaskRecords(), self.clock)

    def _view(self) -> View:
        return self.registry.view("all", lambda _: True)

    def ask(
        self, name: str, *given: tuple[str, str], by: JID = ANN, id_: str = "1", **more: Any
    ) -> str | None:
        execute = Execute(
            skill=name, params=tuple([Param(name=name, text=text) for name, text in given]), **more
        )
        size = 200 + sum(len(text) for _, text in given)
        stanza = Incoming.of(ET.Element("iq", {"id": id_}), size)
        answer = self.inline.answer(execute, by, by.bare, AGENT, stanza)
        return None if answer is None else answer.text


@given(texts)
def test_a_result_is_what_the_encoder_makes_of_it(text: str) -> None:
    service = Service()
    answer = service.ask("add", ("a", text))
    assert answer is not None
    made = service.registry.get("add")
    assert made is not None
    expected = result_of(
        made, call_inline(made, prepare_texts(made, (Param(name="a", text=text),)))
    )
    found = read(answer, Result)
    assert isinstance(found, Result)
    assert (found.skill, found.is_error) == (expected.skill, expected.is_error)
    assert found.outputs == expected.outputs
    assert encode(found) == answer


def test_a_duration_is_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 1.2345))
    service = Service()
    monkeypatch.setattr(service.inline, "_perf_counter", lambda: next(times))
    answer = service.ask("add", ("a", "x"))
    assert answer is not None
    assert "duration-ms='1234'" in answer


@given(params, params)
def test_a_repetition_is_told_as_by_the_digest_of_its_content(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    service = Service()
    keys = {
        key_of(
            Request(
                skill="add",
                principal=ANN.bare,
                requester=ANN,
                target=AGENT,
                params=tuple([Param(name=name, text=text) for name, text in given_params]),
            )
        ).text
        for given_params in (one, other)
    }
    service.ask("add", *one)
    service.ask("add", *other)
    assert service.runs == len(keys)


def test_another_id_or_caller_or_skill_is_another_request() -> None:
    service = Service()
    service.ask("add", ("a", "x"))
    service.ask("add", ("a", "x"), id_="2")
    service.ask("add", ("a", "x"), by=BOB)
    service.ask("add", ("a", "x"), priority="high")
    assert service.runs == 4
    assert service.ask("add", ("a", "x"), by=BOB) is not None
    assert service.runs == 4


@pytest.mark.parametrize("since", [0.0, 29.0, 31.0, 59.0, 61.0])
def test_an_answer_is_repeated_for_a_minute(since: float) -> None:
    service = Service()
    service.ask("add", ("a", "before"))
    service.clock.now = since
    first = service.ask("add", ("a", "x"))
    for number in range(100):
        service.clock.now = since + number * 0.59
        service.ask("add", ("a", "x"), id_=f"later-{number}")
    assert service.ask("add", ("a", "x")) == first
    assert service.runs == 102
    service.clock.now = since + UNNAMED_WINDOW_S
    service.ask("add", ("a", "x"))
    assert service.runs == 103


def test_an_error_is_an_answer_and_raised_anew() -> None:
    service = Service()
    raised = []
    for _ in range(2):
        with pytest.raises(StanzaError) as caught:
            service.ask("fail", ("text", "?"))
        raised.append(caught.value)
    assert service.runs == 1
    assert raised[0] is not raised[1]
    assert raised[0].encode() == raised[1].encode()
    assert "is-error='true'" in (service.ask("fail", ("text", "refuse")) or "")


def test_what_is_invalid_is_no_answer_to_repeat() -> None:
    service = Service()
    for _ in range(2):
        with pytest.raises(StanzaError):
            service.ask("fail")
    assert service.runs == 0


def test_answers_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "_MOST_BYTES", 40_000)
    service = Service()
    for number in range(100):
        service.ask("add", ("a", "x" * 1_000), id_=str(number))
    kept = [*service.inline._young, *service.inline._old]
    assert 0 < len(kept) <= 40_000 // 2_000


def test_the_rest_is_left_to_admission() -> None:
    @skill(inline=True, destructive=False)
    def once() -> str:
        """Run once."""
        raise AssertionError

    @skill(read_only=True)
    def waits() -> str:
        """Run in a thread."""
        raise AssertionError

    service = Service(once, waits)
    assert service.ask("once") is None
    assert service.ask("waits") is None
    assert service.ask("unknown") is None
    assert service.ask("add", mode="async") is None
    assert service.ask("add", request="r") is None
    assert service.ask("add", context="c") is None
    assert service.ask("add", ("a", "x" * SMALL)) is None
    assert service.runs == 0


def test_a_skill_that_was_replaced_is_not_called_any_more() -> None:
    @skill(name="again", inline=True, read_only=True)
    def first() -> str:
        """Return which one it is."""
        return "first"

    @skill(name="again", inline=True, read_only=True)
    def second() -> str:
        """Return which one it is."""
        return "second"

    service = Service(first)
    assert ">first<" in (service.ask("again") or "")
    service.registry.remove("again")
    assert service.ask("again", id_="2") is None
    service.registry.add(second)
    assert ">second<" in (service.ask("again", id_="3") or "")


def test_a_large_result_and_later_ones_of_its_skill_are_left_to_the_others() -> None:
    runs = []

    @skill(inline=True, read_only=True, open_world=False)
    def tell(size: int) -> str:
        """Tell a story."""
        runs.append(size)
        return "x" * size

    service = Service(tell)
    assert service.ask("tell", ("size", "15000")) is not None
    assert service.ask("tell", ("size", "16000"), id_="2") is None
    assert service.ask("tell", ("size", "10"), id_="3") is None
    assert runs == [15_000, 16_000]
