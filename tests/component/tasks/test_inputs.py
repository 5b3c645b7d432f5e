"""What a decision and an answer come to: every step of the two lists of the specification."""

import base64
import json
from typing import Any, Literal, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import skill
from component.skills.params import prepare
from component.store import Storage
from component.store.database import Database
from component.tasks import queries, question_rows, questions
from component.tasks.changes import Change, Transaction, change
from component.tasks.protocol import TaskLimits
from component.tasks.question_rows import Answerer
from component.tasks.questions import Judgement, answer, confirm_for, decide, lapses
from component.tasks.request import Confirmation
from component.tasks.rows import moment
from tests import schemas
from tests.component.tasks.ledger import (
    AGENT,
    ALICE,
    BOB,
    DAY,
    NOON,
    OTHER,
    Ledger,
    asked_for,
    event_in,
)
from xep.binding import encode
from xep.data_forms import Field, Form, form_type_field
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import Result
from xep.fluux_agent.task import AnswerParams, FailureText, Input, InputAnswer
from xep.hashes import Hash
from xep.jid import JID
from xep.stanza_error import StanzaError

CAROL = JID.parse("carol@a.example")
MINUTE = 60_000
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "river": {"type": "string", "minLength": 1},
        "length": {"type": "integer"},
        "when": {"type": "string", "format": "date-time"},
    },
    "required": ["river"],
}


@skill(name="report")
def report(topic: str = "rivers", pages: int = 3) -> None:
    """Report."""


def confirm_at(now: int, deadline: int | None = None, id_: str = "c-1") -> Confirm:
    return confirm_for(
        *(asked_for(confirmation=Confirmation((ALICE,), "high")), report, prepare(report)),
        task="t-1",
        question=id_,
        expires=moment(lapses(now, 60, deadline)),
    )


def in_transaction(database: Database) -> Transaction:
    return Transaction(database, TaskLimits())


class World:
    """One task with one open question."""

    def __init__(
        self,
        kind: Literal["confirm", "input"] = "confirm",
        asked: tuple[JID, ...] = (ALICE, CAROL),
        **columns: Any,
    ) -> None:
        self.ledger = Ledger()
        row = self.ledger.add(**columns)
        if kind == "confirm":
            self.confirm = confirm_at(NOON, row.deadline)
            self.change = questions.ask_question(self.ledger, row, self.confirm, asked)
        else:
            change(self.ledger, row, "running", owner="i-1")
            schema = msgspec.Raw(json.dumps(SCHEMA).encode())
            expires = lapses(NOON, 60, row.deadline)
            self.change = questions.ask_input(
                self.ledger, row, ("?1", "q-1"), "Which river?", schema, expires
            )
            assert isinstance(self.change.detail, Input)
            self.input = self.change.detail

    def decide(
        self,
        value: Literal["approve", "deny"] = "approve",
        *,
        who: JID = ALICE,
        at: JID = AGENT,
        id_: str = "c-1",
        lang: str | None = None,
        **more: Any,
    ) -> Judgement:
        decision = Decision(id=id_, value=value, **more)
        found = decide(self.ledger, Answerer(who, at, lang), decision)
        assert found.error is None or found.task is None
        return found

    def answer(
        self,
        values: dict[str, Any] | None = None,
        *,
        who: JID = ALICE,
        at: JID = AGENT,
        task: str = "t-1",
        id_: str = "q-1",
        revision: int = 2,
        owner: str | None = "i-2",
        form: Form | None = None,
        text: bytes | None = None,
    ) -> Judgement:
        if text is None and (values is not None or form is None):
            text = json.dumps(values or {"river": "Rhine"}).encode()
        params = None if text is None else AnswerParams(json=msgspec.Raw(text))
        given_ = InputAnswer(task=task, input=id_, revision=revision, params=params, form=form)
        return answer(self.ledger, Answerer(who, at), given_, owner)

    @property
    def state(self) -> str:
        return self.ledger.row().state

    def cancel(self) -> None:
        change(self.ledger, self.ledger.row(), "cancelled")

    def journal(self) -> list[tuple[Any, ...]]:
        return self.ledger.execute("SELECT step, done, result FROM journal").fetchall()


def condition(judged: Judgement) -> str:
    """The stanza error and the condition; their names are the same or told apart by a slash."""
    assert judged.error is not None
    assert schemas.check(judged.error.encode()) >= 1
    assert len(judged.error.application) == 1
    name = judged.error.application[0].xml.local
    return f"{judged.error.condition}/{name}"


UNKNOWN = "item-not-found/unknown-confirmation"
CONFLICT = "conflict/conflict"
EXPIRED = "not-acceptable/expired"


# -- being asked ---------------------------------------------------------------------------------


def test_asking_is_one_change_with_its_question() -> None:
    world = World()
    row = world.ledger.row()
    assert (row.state, row.revision, row.owner, row.unsent_revision) == (
        "input-required",
        1,
        None,
        1,
    )
    assert row.wake_at == NOON + MINUTE
    assert schemas.check(encode(event_in(world.change))) == 1
    assert event_in(world.change).confirm == world.confirm
    (question,) = question_rows.open_questions(world.ledger, CAROL, AGENT)
    put = question_rows.question_with(world.ledger, row)
    assert put is not None
    assert question == msgspec.structs.replace(put, shown="waiting")
    assert question.content == world.confirm
    assert (question.asked, question.thread) == ((ALICE, CAROL), "t-1")
    assert not question_rows.open_questions(world.ledger, BOB, AGENT)
    assert not question_rows.open_questions(world.ledger, CAROL, OTHER)


def test_a_question_names_the_revision_that_asked() -> None:
    world = World("input", request=asked_for(thread="talk", lang="de"))
    assert (world.change.row.revision, world.input.revision) == (2, 2)
    assert event_in(world.change).input == world.input
    assert world.input.form is not None
    assert world.input.form.form_type == "urn:fluux:agent:0#task"
    assert [field.var for field in world.input.form.fields][1:] == ["river", "length", "when"]
    assert schemas.check(encode(event_in(world.change))) == 1
    (question,) = question_rows.open_questions(world.ledger, ALICE, AGENT)
    assert (question.thread, question.request.lang, question.request.conversational) == (
        "talk",
        "de",
        True,
    )


def test_nobody_is_asked_once_the_deadline_is_reached() -> None:
    ledger = Ledger()
    row = ledger.add(deadline=NOON)
    made = questions.ask_question(ledger, row, confirm_at(NOON, NOON), (ALICE,))
    assert made.row.state == "failed"
    assert ledger.count("inputs") == ledger.count("asked") == 0


def test_a_new_question_takes_the_place_of_the_open_one() -> None:
    world = World()
    second = confirm_at(NOON, id_="c-2")
    questions.ask_question(world.ledger, world.ledger.row(), second, (ALICE,))
    (question,) = question_rows.open_questions(world.ledger, ALICE, AGENT)
    assert question.id == "c-2"
    assert condition(world.decide()) == CONFLICT
    assert world.decide(id_="c-2").error is None


@pytest.mark.parametrize("target", [str(AGENT), f"{AGENT}/x_y"])
def test_people_answer_to_the_bare_address(target: str) -> None:
    world = World(target=target)
    at = JID.parse(f"{AGENT}/other")
    assert len(question_rows.open_questions(world.ledger, ALICE, at)) == 1
    assert world.decide(at=JID.parse("assistan@agent.example.com")).error is not None
    assert world.decide(at=at).error is None


# -- decisions (CNF-032) -------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["open", "decided", "lapsed", "ended"])
@pytest.mark.parametrize("foreign", [{"who": BOB}, {"at": OTHER}, {"id_": "c-9"}])
def test_1_unknown_and_foreign_confirmations_look_the_same(
    when: str, foreign: dict[str, Any]
) -> None:
    world = World()
    if when == "decided":
        assert world.decide("deny").error is None
    elif when == "lapsed":
        world.ledger.now += MINUTE
    elif when == "ended":
        world.cancel()
    before = world.ledger.row()
    world.ledger.asked.clear()
    found = world.decide(**foreign, hash=Hash(algo="sha-256", digest=b"wrong"))
    assert found == Judgement(found.error)
    assert found.error is not None
    assert found.error.encode() == errors.unknown_confirmation().encode()
    assert len(world.ledger.asked) == 1  # whatever there is: one query and no more
    assert world.ledger.row() == before


def test_1_after_retention_it_is_unknown_to_all() -> None:
    world = World()
    world.decide("deny")
    world.ledger.now = world.ledger.row().retain_until
    assert world.decide("deny").error is None
    world.ledger.now += 1
    assert condition(world.decide("deny")) == UNKNOWN


def test_1_an_open_one_is_there_however_old_its_task_is() -> None:
    world = World(retain_until=NOON)
    world.ledger.now += 1
    assert world.decide().error is None


def test_1_an_input_is_no_confirmation() -> None:
    assert condition(World("input").decide(id_="q-1")) == UNKNOWN


@pytest.mark.parametrize("state", ["open", "decided", "lapsed", "ended"])
@pytest.mark.parametrize("algo", ["sha-256", "sha-1"])
def test_2_another_digest_contradicts(state: str, algo: str) -> None:
    world = World()
    assert world.confirm.hash is not None
    digest = b"other" if algo == "sha-256" else world.confirm.hash.digest
    if state == "decided":
        world.decide()
    elif state == "lapsed":
        world.ledger.now += MINUTE
    elif state == "ended":
        world.cancel()
    before = world.ledger.row()
    assert condition(world.decide(hash=Hash(algo=algo, digest=digest))) == CONFLICT
    assert world.ledger.row() == before


@pytest.mark.parametrize(("first", "second"), [("approve", "deny"), ("deny", "approve")])
@pytest.mark.parametrize("later", [0, MINUTE])
def test_3_what_is_decided_stays(first: Any, second: Any, later: int) -> None:
    world = World()
    assert world.decide(first).error is None
    before = world.ledger.row()
    world.ledger.now += later  # it was decided in time, whenever the copy comes
    assert world.decide(first) == Judgement()
    assert world.decide(first, who=CAROL, hash=world.confirm.hash) == Judgement()
    assert condition(world.decide(second)) == CONFLICT
    assert condition(world.decide(second, who=CAROL)) == CONFLICT
    assert world.ledger.row() == before


def test_4_it_lapses_at_its_instant_and_whoever_comes_finds_out() -> None:
    world = World()
    world.ledger.now = NOON + MINUTE - 1
    assert World().decide().error is None
    world.ledger.now = NOON + MINUTE
    late = world.decide("deny")
    assert condition(late) == EXPIRED
    assert late.change is not None
    failure = event_in(late.change).failure
    assert failure is not None
    assert [one.xml.local for one in failure.conditions] == ["confirmation-expired"]
    assert failure.repeatable
    assert condition(world.decide()) == EXPIRED
    assert world.decide().change is None


def test_4_a_clock_set_back_brings_nothing_back() -> None:
    world = World()
    world.ledger.now += MINUTE
    assert questions.lapse(world.ledger, world.ledger.row()) is not None
    world.ledger.now = NOON
    assert condition(world.decide()) == EXPIRED


def test_4_at_the_deadline_the_deadline_is_the_reason() -> None:
    world = World(deadline=NOON + 30_500)
    assert world.confirm.expires == moment(NOON + 30_499)
    world.ledger.now = NOON + 30_500
    late = world.decide()
    assert condition(late) == EXPIRED
    assert late.change is not None
    assert event_in(late.change).failure is not None
    (reason,) = event_in(late.change).failure.conditions
    assert reason.xml.local == "deadline-expired"


def test_5_a_task_that_has_ended_takes_no_decision() -> None:
    world = World()
    world.cancel()
    before = world.ledger.row()
    assert condition(world.decide()) == CONFLICT
    assert world.ledger.row() == before


@pytest.mark.parametrize("with_hash", [True, False])
def test_6_an_approval_lets_it_go_on(with_hash: bool) -> None:
    world = World(deadline=NOON + DAY)
    hash_ = world.confirm.hash if with_hash else None
    found = world.decide(who=CAROL, hash=hash_)
    assert found.error is None
    assert found.change is not None
    row = world.ledger.row()
    assert found.change.row == row
    assert (row.state, row.owner, row.revision, row.wake_at) == ("accepted", None, 2, NOON + DAY)
    (kept,) = world.ledger.execute(
        "SELECT state, answer, answered_by, answered_at FROM inputs"
    ).fetchall()
    assert kept == ("answered", "approve", "carol@a.example", NOON)
    assert world.journal() == []


@pytest.mark.parametrize(
    ("reason", "lang", "text"),
    [
        ("Only what is old.", "de", FailureText(text="Only what is old.", lang="de")),
        ("  so\nlate ", None, FailureText(text="so\nlate", lang="und")),
        (None, "de", FailureText(text="The person asked did not allow it.", lang="en")),
        (" \n", "de", FailureText(text="The person asked did not allow it.", lang="en")),
    ],
)
def test_6_a_denial_fails_the_task_with_the_reason(
    reason: str | None, lang: str | None, text: FailureText
) -> None:
    world = World()
    found = world.decide("deny", reason=reason, lang=lang)
    assert found.error is None
    assert found.change is not None
    failure = event_in(found.change).failure
    assert failure is not None
    assert [one.xml.local for one in failure.conditions] == ["denied"]
    assert failure.texts == (text,)
    assert failure.repeatable
    assert world.state == "failed"
    assert schemas.check(encode(event_in(found.change))) == 1


def test_what_was_approved_is_known_to_whoever_runs_it() -> None:
    world = World()
    assert question_rows.approved_of(world.ledger, "t-1") is None
    world.decide()
    assert question_rows.approved_of(world.ledger, "t-1") == world.confirm
    second = confirm_at(NOON, id_="c-2")
    questions.ask_question(world.ledger, world.ledger.row(), second, (ALICE,))
    assert question_rows.approved_of(world.ledger, "t-1") == world.confirm
    world.decide(id_="c-2")
    assert question_rows.approved_of(world.ledger, "t-1") == second
    denied = World()
    denied.decide("deny")
    assert question_rows.approved_of(denied.ledger, "t-1") is None


def test_a_denial_in_the_middle_of_the_work_is_not_to_be_repeated() -> None:
    world = World()
    world.ledger.execute("INSERT INTO journal (task, step, fence, done) VALUES ('t-1', 's', 0, 1)")
    found = world.decide("deny")
    assert found.change is not None
    assert event_in(found.change).failure is not None
    assert not event_in(found.change).failure.repeatable


# -- answers (INP-010) ---------------------------------------------------------------------------


def form(river: str = "Rhine", **more: str) -> Form:
    fields = {"river": river} | more
    return Form(
        type="submit",
        fields=(
            form_type_field("urn:fluux:agent:0#task"),
            *(Field(var=var, values=(value,)) for var, value in fields.items()),
        ),
    )


def test_a_form_is_refused_with_what_is_wrong_in_each_field() -> None:
    error = World("input").answer(form=form(length="long", when="soon")).error
    assert error is not None
    assert "length: expected" in error.text
    assert "when: " in error.text


@pytest.mark.parametrize("foreign", [{"who": BOB}, {"at": OTHER}, {"task": "t-9"}])
@pytest.mark.parametrize("state", ["open", "answered", "ended"])
def test_1_no_task_of_the_principal(state: str, foreign: dict[str, Any]) -> None:
    world = World("input")
    if state == "answered":
        world.answer()
    elif state == "ended":
        world.cancel()
    world.ledger.asked.clear()
    found = world.answer(**foreign, id_="q-9")
    assert found.error is not None
    assert found.error.encode() == errors.unknown_task().encode()
    assert len(world.ledger.asked) == 1


def test_2_no_such_question_of_this_task() -> None:
    world = World("input")
    world.ledger.add("t-2")
    assert condition(world.answer(id_="q-9")) == "item-not-found/unknown-input"
    assert condition(world.answer(task="t-2")) == "item-not-found/unknown-input"
    world = World("confirm")
    assert condition(world.answer(id_="c-1")) == "item-not-found/unknown-input"


@pytest.mark.parametrize("later", [0, MINUTE])
def test_3_the_same_answer_again_gets_the_task_as_it_is_now(later: int) -> None:
    world = World("input")
    first = world.answer({"river": "Rhine", "length": 1})
    assert first.change is not None
    change(world.ledger, world.ledger.row(), "completed", Result(skill="report"))
    before = world.ledger.row()
    world.ledger.now += later
    for again in (
        world.answer({"length": 1.0, "river": "Rhine"}),
        world.answer(form=form(length="1")),
    ):
        assert again.error is None
        assert again.change is None
        assert again.task is not None
        assert again.task.state == "completed"
    assert condition(world.answer({"river": "Elbe"})) == CONFLICT
    assert condition(world.answer({"river": "Rhine", "length": True})) == CONFLICT
    assert condition(world.answer({"river": "Rhine", "length": 1}, revision=1)) == CONFLICT
    assert condition(world.answer(text=b"[]")) == CONFLICT
    assert condition(world.answer(form=Form(type="cancel"))) == CONFLICT
    assert world.ledger.row() == before
    assert len(world.journal()) == 1


@pytest.mark.parametrize("revision", [0, 1, 3])
@pytest.mark.parametrize("state", ["open", "lapsed", "ended"])
def test_4_another_revision_contradicts(state: str, revision: int) -> None:
    world = World("input")
    if state == "lapsed":
        world.ledger.now += MINUTE
    elif state == "ended":
        world.cancel()
    assert condition(world.answer(revision=revision)) == CONFLICT


def test_5_an_answer_that_comes_too_late() -> None:
    world = World("input")
    world.ledger.now += MINUTE
    late = world.answer({"river": 1})
    assert condition(late) == EXPIRED
    assert late.change is not None
    assert event_in(late.change).failure is not None
    (reason,) = event_in(late.change).failure.conditions
    assert reason.xml.local == "input-expired"
    assert condition(world.answer()) == EXPIRED


def test_6_a_task_that_has_ended_takes_no_answer() -> None:
    world = World("input")
    world.cancel()
    assert condition(world.answer({"river": 1})) == CONFLICT


def test_6_a_question_that_another_one_replaced_takes_no_answer() -> None:
    world = World("input")
    row = world.ledger.row()
    schema = msgspec.Raw(json.dumps(SCHEMA).encode())
    questions.ask_input(world.ledger, row, ("?2", "q-2"), "And now?", schema, NOON + MINUTE)
    assert condition(world.answer()) == CONFLICT
    assert world.answer(id_="q-2", revision=3).error is None


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"values": {"river": 1}}, "river"),
        ({"values": {"river": ""}}, "river"),
        ({"values": {"length": 3}}, "river"),
        ({"values": {"river": "Rhine", "length": "3"}}, "length"),
        ({"values": {"river": "Rhine", "when": "soon"}}, "when"),
        ({"text": b"{}"}, "river"),
        ({"form": form("")}, "river"),
        ({"form": form(length="long")}, "length"),
        ({"text": b"[]"}, None),
        ({"text": b"{"}, None),
        ({"text": b"[" * 100_000}, None),
        ({"form": Form(type="result")}, None),
        ({"form": Form(type="submit", fields=(form_type_field("urn:x"),))}, None),
        ({"form": form(), "values": {"river": "Rhine"}}, None),
    ],
)
def test_7_what_does_not_fit_leaves_the_question_open(
    how: dict[str, Any], wanted: str | None
) -> None:
    world = World("input")
    before = world.ledger.row()
    found = world.answer(**how)
    assert found.change is None
    assert found.error is not None
    if wanted is None:
        assert condition(found) == "bad-request/malformed"
    else:
        assert found.error.application == (errors.InvalidParam(name=wanted),)
    assert world.ledger.row() == before
    assert world.answer().error is None


def test_neither_params_nor_form_is_malformed() -> None:
    world = World("input")
    given_ = InputAnswer(task="t-1", input="q-1", revision=2)
    found = answer(world.ledger, Answerer(ALICE, AGENT), given_, None)
    assert condition(found) == "bad-request/malformed"


@pytest.mark.parametrize(("owner", "state"), [("i-2", "running"), (None, "accepted")])
@pytest.mark.parametrize("by_form", [True, False])
def test_8_an_answer_becomes_the_result_of_its_step(
    owner: str | None, state: str, by_form: bool
) -> None:
    world = World("input")
    when = "2026-12-01T08:00:00Z"
    if by_form:
        found = world.answer(form=form(length=" 3 ", when=when), owner=owner)
    else:
        found = world.answer({"river": "Rhine", "length": 3, "when": when}, owner=owner)
    assert found.error is None
    assert found.task == queries.get(world.ledger, ALICE, AGENT, "t-1")
    assert found.task is not None
    assert (found.task.state, found.task.revision, found.task.input) == (state, 3, None)
    ((step, done, result),) = world.journal()
    assert (step, done) == ("?1", 1)
    assert json.loads(result) == {"value": {"river": "Rhine", "length": 3, "when": when}}


def test_8_to_decline_is_an_answer_too() -> None:
    world = World("input")
    found = world.answer(form=Form(type="cancel"))
    assert found.error is None
    assert found.change is not None
    assert found.change.row.state == "running"
    assert world.journal() == [("?1", 1, '{"declined":""}')]
    assert world.answer(form=Form(type="cancel")).error is None
    assert condition(world.answer()) == CONFLICT


def test_references_are_not_fetched() -> None:
    ledger = Ledger()
    row = ledger.add()
    change(ledger, row, "running", owner="i-1")
    schema = b'{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/x.json"}}}'
    questions.ask_input(ledger, row, ("?1", "q-1"), "What?", msgspec.Raw(schema), NOON + MINUTE)
    given_ = InputAnswer(
        task="t-1", input="q-1", revision=2, params=AnswerParams(json=msgspec.Raw(b'{"a":1}'))
    )
    found = answer(ledger, Answerer(ALICE, AGENT), given_, None)
    assert condition(found) == "bad-request/invalid-param"


# -- the timer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reason"), [("confirm", "confirmation-expired"), ("input", "input-expired")]
)
def test_the_timer_lets_a_question_lapse_once(kind: Any, reason: str) -> None:
    world = World(kind)
    ledger = world.ledger
    assert questions.lapse(ledger, ledger.row()) is None
    ledger.now += MINUTE
    made = questions.lapse(ledger, ledger.row())
    assert isinstance(made, Change)
    assert event_in(made).failure is not None
    assert [one.xml.local for one in event_in(made).failure.conditions] == [reason]
    assert schemas.check(encode(event_in(made))) == 1
    assert questions.lapse(ledger, ledger.row()) is None
    assert not question_rows.open_questions(ledger, ALICE, AGENT)


def test_what_is_over_is_not_listed_before_the_timer_has_seen_it() -> None:
    world = World()
    world.ledger.now += MINUTE
    assert not question_rows.open_questions(world.ledger, ALICE, AGENT)


# -- any order -----------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["approve", "deny"]), st.sampled_from([ALICE, CAROL, BOB])),
            st.tuples(st.sampled_from(["cancel", "wait", "lapse", "back"]), st.just(ALICE)),
        ),
        max_size=8,
    )
)
def test_one_decision_counts_whatever_happens(acts: list[tuple[Any, JID]]) -> None:
    """Against a model of three facts: what was decided, whether it lapsed, whether it was ended."""
    world = World()
    decided, lapsed, ended = None, False, False
    for act, who in acts:
        if act == "cancel":
            if world.state in ("input-required", "accepted"):
                world.cancel()
                ended = ended or decided is None
        elif act == "wait":
            world.ledger.now += MINUTE
        elif act == "back":
            world.ledger.now -= MINUTE
        elif act == "lapse":
            made = questions.lapse(world.ledger, world.ledger.row())
            lapsed = lapsed or made is not None
        else:
            over = lapsed or world.ledger.now >= NOON + MINUTE
            found = world.decide(act, who=who)
            if who is BOB:
                assert condition(found) == UNKNOWN
            elif decided is not None:
                assert (found.error is None) == (act == decided)
            elif over:
                assert condition(found) == EXPIRED
                lapsed = lapsed or found.change is not None
            elif ended:
                assert condition(found) == CONFLICT
            else:
                assert found.error is None
                decided = act
        said = queries.get(world.ledger, ALICE, AGENT, "t-1")
        assert said is not None
        if said.failure is not None:
            (reason,) = said.failure.conditions
            assert reason.xml.local == ("denied" if decided == "deny" else "confirmation-expired")


# -- both databases ------------------------------------------------------------------------------


@pytest.mark.ports
@pytest.mark.anyio
async def test_contradicting_decisions_at_once(storage: Storage) -> None:
    asked = tuple(JID.parse(f"p{n}@a.example") for n in range(8))

    def begin(database: Database) -> None:
        row = Ledger.add(cast("Ledger", database))
        confirm = confirm_at(database.now)
        questions.ask_question(in_transaction(database), row, confirm, asked)

    await storage.write(begin)
    found: list[tuple[str, StanzaError | None]] = []

    async def one(number: int, who: JID) -> None:
        value: Literal["approve", "deny"] = "approve" if number % 2 else "deny"
        decision = Decision(id="c-1", value=value)
        judged = await storage.write(
            lambda database: decide(in_transaction(database), Answerer(who, AGENT), decision)
        )
        found.append((value, judged.error))

    async with anyio.create_task_group() as group:
        for number, who in enumerate(asked):
            group.start_soon(one, number, who)
    won = {value for value, error in found if error is None}
    assert len(won) == 1
    assert {value for value, error in found if error is not None}.isdisjoint(won)
    task = await storage.read(lambda database: queries.get(database, ALICE, AGENT, "t-1"))
    assert task is not None
    assert (task.revision, task.state) == (2, "accepted" if won == {"approve"} else "failed")


@pytest.mark.ports
@pytest.mark.anyio
async def test_answers_on_both_databases(storage: Storage) -> None:
    schema = msgspec.Raw(json.dumps(SCHEMA).encode())

    def begin(database: Database) -> int:
        row = Ledger.add(cast("Ledger", database))
        tx = in_transaction(database)
        change(tx, row, "running", owner="i-1")
        expires = lapses(tx.now, 60, None)
        made = questions.ask_input(tx, row, ("?1", "q-1"), "A?", schema, expires)
        return made.row.revision

    revision = await storage.write(begin)
    (question,) = await storage.read(
        lambda database: question_rows.open_questions(database, ALICE, AGENT)
    )
    assert question.id == "q-1"
    judged: list[Judgement] = []

    async def one(river: str) -> None:
        params = AnswerParams(json=msgspec.Raw(json.dumps({"river": river}).encode()))
        given_ = InputAnswer(task="t-1", input="q-1", revision=revision, params=params)
        judged.append(
            await storage.write(
                lambda database: answer(
                    in_transaction(database), Answerer(ALICE, AGENT), given_, None
                )
            )
        )

    async with anyio.create_task_group() as group:
        for river in ("Rhine", "Elbe", "Rhine", "Elbe"):
            group.start_soon(one, river)
    assert len([one for one in judged if one.change is not None]) == 1
    assert len([one for one in judged if one.error is None]) == 2
    assert not await storage.read(
        lambda database: question_rows.open_questions(database, ALICE, AGENT)
    )


def test_the_digest_is_kept_with_the_row() -> None:
    world = World()
    ((kept,),) = world.ledger.execute("SELECT hash FROM inputs").fetchall()
    assert world.confirm.hash is not None
    assert kept == world.confirm.hash.digest.hex()
    assert base64.b64encode(bytes.fromhex(kept)).decode() in encode(world.confirm)
