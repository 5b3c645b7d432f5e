"""Every rule raises Violation for a history that breaks it, and none for the same without that."""

import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.__main__ import shrink
from tests.simulation.areas.chat import Once, Privacy, Replies
from tests.simulation.areas.schedules import Firings
from tests.simulation.areas.work import Answers, Approvals, Effects, Ends
from tests.simulation.history import Effect, Entry, Fault, History, Prompt, Stanza, Wish
from tests.simulation.life import Action, Life
from tests.simulation.rules import Rule, Rules, Violation, check_files, check_internals, check_slots
from tests.simulation.task_rules import (
    NOT_SEE,
    SEE,
    Cancelled,
    Deadlines,
    Decisions,
    Expiries,
    Outcomes,
    Told,
)

BOT, ROMEO, JULIET = (f"{name}@capulet.example/home" for name in ("bot", "romeo", "juliet"))
TASK = "xmlns='urn:fluux:agent:0#task'"
EXECUTE = "xmlns='urn:fluux:agent:0#execute'"
CONFIRM = "xmlns='urn:fluux:agent:0#confirm'"


def sent(at: float, who: str, xml: str) -> Stanza:
    return Stanza(at, who, "sent", xml)


def received(at: float, who: str, xml: str) -> Stanza:
    return Stanza(at, who, "received", xml)


def says(at: float, who: str, text: str, id_: str = "a") -> Stanza:
    return sent(at, who, f"<message id='{id_}'><body>{text}</body></message>")


def hears(at: float, who: str, text: str, id_: str = "b") -> Stanza:
    return received(at, who, f"<message id='{id_}'><body>{text}</body></message>")


def wants(at: float, text: str, who: str = "bot@capulet.example") -> Wish:
    return Wish(at, who, text)


def executes(at: float, id_: str, request: str) -> Stanza:
    return sent(at, BOT, f"<iq type='set' id='{id_}'><execute {EXECUTE} request='{request}'/></iq>")


def accepted(at: float, id_: str, task: str) -> Stanza:
    payload = f"<accepted {EXECUTE} task='{task}' state='accepted'/>"
    return received(at, BOT, f"<iq type='result' id='{id_}'>{payload}</iq>")


def event(at: float, task: str, state: str, revision: int = 1) -> Stanza:
    payload = f"<task {TASK} id='{task}' state='{state}' revision='{revision}'/>"
    return received(at, BOT, f"<message id='{task}.{revision}'>{payload}</message>")


def asks(at: float, who: str, digest: str = "AAAA") -> Stanza:
    hash_ = f"<hash xmlns='urn:xmpp:hashes:2' algo='sha-256'>{digest}</hash>"
    action = "<action><param>x1</param></action>"
    return received(
        at, who, f"<message><confirm {CONFIRM} id='q'>{action}{hash_}</confirm></message>"
    )


def decides(at: float, who: str, id_: str, value: str = "approve", digest: str = "AAAA") -> Stanza:
    hash_ = f"<hash xmlns='urn:xmpp:hashes:2' algo='sha-256'>{digest}</hash>"
    payload = f"<decision {CONFIRM} id='q' value='{value}'>{hash_}</decision>"
    return sent(at, who, f"<iq type='set' id='{id_}'>{payload}</iq>")


def result(at: float, who: str, id_: str, payload: str = "") -> Stanza:
    return received(at, who, f"<iq type='result' id='{id_}'>{payload}</iq>")


def found(rule: type[Rule], *entries: Entry) -> str:
    """Return what a rule finds in a history; empty for nothing."""
    history = History(lambda: 0.0)
    rules = Rules(history, [rule])
    for entry in entries:
        history.add(entry)
    for one in rules._rules:
        rules._check(one.at_rest)
    return str(rules.violation or "")


def test_an_iq_that_is_answered_twice_or_never_is_found() -> None:
    question, answer = executes(0, "x1-1", "x1"), accepted(1, "x1-1", "t")
    assert found(Answers, question, answer) == ""
    assert "twice" in found(Answers, question, answer, answer)
    assert "never answered" in found(Answers, question)
    assert found(Answers, question, Fault(1, "kill")) == ""


def test_a_task_that_never_ends_or_goes_on_after_its_end_is_found() -> None:
    begun = executes(0, "x1-1", "x1"), accepted(1, "x1-1", "t")
    ended = event(2, "t", "completed", 2)
    assert found(Ends, *begun, ended) == ""
    assert "still accepted" in found(Ends, *begun)
    assert "has ended" in found(Ends, *begun, ended, event(3, "t", "failed", 3))
    again = executes(3, "x1-2", "x1"), accepted(4, "x1-2", "u")
    assert "two tasks" in found(Ends, *begun, ended, *again)
    lost = received(5, BOT, "<iq type='error' id='look-t-9'><error><item-not-found/></error></iq>")
    assert "does not exist" in found(Ends, *begun, lost)


def test_a_step_that_is_done_twice_or_out_of_order_is_found() -> None:
    first, second = Effect(1, "x1", "s0", "k0"), Effect(2, "x1", "s1", "k1")
    assert found(Effects, first, second) == ""
    assert "again" in found(Effects, first, first)
    assert "two idempotency keys" in found(Effects, first, Effect(2, "x1", "s0", "other"))
    assert "was done after" in found(Effects, second, first)
    may_repeat = wants(0, "again x1, mode auto")
    assert found(Effects, may_repeat, first, first) == ""
    said = result(3, BOT, "x2-1", f"<result {EXECUTE}><output>worked x2</output></result>")
    assert "nothing was done" in found(Effects, said)


def test_a_payment_without_the_approval_of_the_one_who_is_asked_is_found() -> None:
    paid = Effect(9, "x1", "paid 5", "k")
    assert found(Approvals, asks(1, ROMEO), decides(2, ROMEO, "d"), paid) == ""
    assert "was paid" in found(Approvals, asks(1, ROMEO), paid)
    assert "was paid" in found(Approvals, asks(1, ROMEO), decides(2, JULIET, "d"), paid)
    forged = decides(2, ROMEO, "d", digest="BBBB")
    assert "was paid" in found(Approvals, asks(1, ROMEO), forged, paid)
    assert "2 times" in found(Approvals, asks(1, ROMEO), decides(2, ROMEO, "d"), paid, paid)


def test_a_decision_that_must_not_count_is_found() -> None:
    asked, counts = asks(1, ROMEO), result(3, ROMEO, "d")
    assert found(Decisions, asked, decides(2, ROMEO, "d"), counts) == ""
    other = decides(2, JULIET, "d"), result(3, JULIET, "d")
    assert "'romeo@capulet.example'] were asked" in found(Decisions, asked, *other)
    forged = decides(2, ROMEO, "d", digest="BBBB")
    assert "something else" in found(Decisions, asked, forged, counts)
    denied = decides(4, ROMEO, "e", "deny"), result(5, ROMEO, "e")
    assert "differently" in found(Decisions, asked, decides(2, ROMEO, "d"), counts, *denied)


def test_an_end_that_nobody_is_told_of_is_found() -> None:
    begun = executes(0, "x1-1", "x1"), accepted(1, "x1-1", "t")
    assert found(Told, *begun, event(2, "t", "completed")) == ""
    assert "never reported" in found(Told, *begun, event(2, "t", "running"))
    assert found(Told, *begun, Fault(2, "away", "bot@capulet.example")) == ""
    assert found(Told, *begun, wants(2, NOT_SEE)) == ""
    assert found(Told, wants(0, NOT_SEE), *begun) == ""
    assert "never reported" in found(Told, wants(0, NOT_SEE), wants(0, SEE), *begun)


def test_a_task_that_fails_or_takes_long_without_a_cause_is_found() -> None:
    begun = wants(1000, "note x1, mode auto"), accepted(1001, "x1-1", "t")
    assert found(Outcomes, *begun, event(1002, "t", "completed")) == ""
    assert "it is failed" in found(Outcomes, *begun, event(1002, "t", "failed"))
    assert found(Outcomes, Fault(900, "kill"), *begun, event(1002, "t", "failed")) == ""
    assert "it took" in found(Outcomes, *begun, event(3000, "t", "completed"))
    assert "has not ended" in found(Outcomes, *begun)


def test_an_answer_after_the_question_has_expired_is_found() -> None:
    before = Effect(0, "x1", "before", "k")
    assert found(Expiries, before, Effect(500, "x1", "after word-x1", "l")) == ""
    assert "too late" in found(Expiries, before, Effect(20_000, "x1", "after word-x1", "l"))


def test_a_step_after_the_deadline_is_found() -> None:
    wish = wants(1000, "work x1, mode auto, within 60 s")
    assert found(Deadlines, wish, Effect(1050, "x1", "s0", "k")) == ""
    assert "after the deadline" in found(Deadlines, wish, Effect(1080, "x1", "s0", "k"))
    jump = Fault(1001, "clock")
    assert found(Deadlines, wish, jump, Effect(1080, "x1", "s0", "k")) == ""


def test_a_step_after_the_cancellation_is_found() -> None:
    state = f"<task {TASK} id='t' state='cancelling' revision='2'/>"
    stopped = result(1000, BOT, "cancel-x1-3", state)
    assert found(Cancelled, stopped, Effect(1000.1, "x1", "s0", "k")) == ""
    assert "after it was cancelled" in found(Cancelled, stopped, Effect(1009, "x1", "s1", "k"))


def test_a_message_without_an_answer_is_found() -> None:
    question = says(5000, ROMEO, "m1 talk, please.", "romeo-m1")
    assert found(Replies, question, hears(5001, ROMEO, "re m1: indeed")) == ""
    assert "nobody has answered" in found(Replies, question)
    bounced = received(5001, ROMEO, "<message type='error' id='romeo-m1'/>")
    assert found(Replies, question, bounced) == ""
    assert found(Replies, question, Fault(5000.05, "kill")) == ""
    assert "nobody has answered" in found(Replies, question, Fault(5010, "kill"))
    taken = Prompt(5000, "m1 talk, please.")
    assert "nobody has answered" in found(Replies, question, taken, Fault(5000.05, "kill"))


def test_a_message_that_is_sent_again_without_a_cause_is_found() -> None:
    first = hears(1000, ROMEO, "re m1: indeed", "one")
    assert found(Once, first, hears(2000, ROMEO, "re m2: indeed", "two")) == ""
    assert "sent again" in found(Once, first, hears(2000, ROMEO, "re m1: indeed", "one"))
    again = hears(1009, ROMEO, "re m1: indeed", "one")
    assert found(Once, first, Fault(1001, "kill"), again) == ""


def test_a_secret_that_somebody_else_gets_is_found() -> None:
    assert found(Privacy, Prompt(1, "secret-romeo-1"), Prompt(2, "secret-juliet-2")) == ""
    assert "secrets of" in found(Privacy, Prompt(1, "secret-romeo-1 secret-juliet-2"))
    assert "has received a secret" in found(Privacy, hears(1, ROMEO, "secret-juliet-2"))


def test_a_secret_in_the_files_of_somebody_else_is_found(tmp_path: Path) -> None:
    for name in (
        "romeo@capulet.example",
        "lobby@rooms.capulet.example&2f;id:romeo@capulet.example",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "history.jsonl").write_text("secret-romeo-1 hush-romeo-2")
    check_files(tmp_path)
    (tmp_path / "lobby@rooms.capulet.example").mkdir()
    (tmp_path / "lobby@rooms.capulet.example" / "MEMORY.md").write_text("hush-romeo-2")
    with pytest.raises(Violation, match="has text of"):
        check_files(tmp_path)


def test_a_schedule_that_fires_twice_is_found() -> None:
    wish = wants(0, "/schedule add in 2 minutes: remember s1", "romeo@capulet.example")
    first = hears(120, ROMEO, "Time for s1.", "one")
    assert found(Firings, wish, first, first) == ""
    second = hears(121, ROMEO, "Time for s1.", "two")
    assert "has fired 2 times" in found(Firings, wish, first, second)


def kit(*, taken: int, runs: dict[str, Any]) -> Any:
    """Return a service with so many slots taken."""
    slots = SimpleNamespace(total=4, free=4 - taken)
    worker = SimpleNamespace(slots=SimpleNamespace(snapshot=lambda: slots), _runs=runs)
    tasks = SimpleNamespace(service=SimpleNamespace(_worker=worker))
    return SimpleNamespace(
        kernel=SimpleNamespace(tasks=tasks), service=SimpleNamespace(_subsystems=object())
    )


def run(*, ended: bool) -> Any:
    return SimpleNamespace(task="t", slot=object(), ended=SimpleNamespace(is_set=lambda: ended))


def test_slots_and_runs_that_are_kept_are_found() -> None:
    check_slots(kit(taken=1, runs={"t": run(ended=False)}))
    check_internals(kit(taken=0, runs={}))
    with pytest.raises(Violation, match="2 slots are taken, by 1 runs"):
        check_slots(kit(taken=2, runs={"t": run(ended=False)}))
    with pytest.raises(Violation, match="still kept"):
        check_slots(kit(taken=0, runs={"t": run(ended=True)}))
    with pytest.raises(Violation, match="never end"):
        check_internals(kit(taken=0, runs={"t": run(ended=False)}))
    with pytest.raises(Violation, match="not given back"):
        check_internals(kit(taken=1, runs={}))


class Happens(Action, frozen=True, kw_only=True):
    """An action of the test."""


def test_a_life_is_shortened_to_the_actions_that_matter() -> None:
    numbers = range(1, 41)
    life = Life(1, 40.0, tuple(Happens(at=60.0 * one, number=one) for one in numbers))
    needed = set(Random(7).sample(numbers, 3))
    tried: list[Life] = []

    def fails(shorter: Life) -> bool:
        tried.append(shorter)
        return needed <= {one.number for one in shorter.actions}

    short = shrink(life, fails, time.monotonic() + 60)
    assert {one.number for one in short.actions} == needed
    assert short.days < life.days
    assert len(tried) < 200
