"""Standing approvals: when they are offered, and which actions then run without a question."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.policy import ConfirmationRule
from component.skills import FREE_TEXT, Context, Skill, skill
from component.skills.params import prepare
from component.task_messages.confirmation_wording import standing_wording
from component.tasks import questions, standing_rows
from component.tasks.changes import Transaction
from component.tasks.question_rows import Answerer
from component.tasks.questions import Judgement
from component.tasks.request import CallerContext, Confirmation, Request
from component.tasks.rows import Row
from component.tasks.run import Admitted
from component.tasks.several_calls import SEVERAL_CALLS
from component.tasks.standing import StandingApprovals
from component.tasks.worker import Verdict, ask_before, resume
from tests.component.tasks.ledger import AGENT, ALICE, BOB, DAY, Ledger, asked_for
from tests.component.tasks.test_durable import text_of
from tests.component.tasks.test_instances import two
from tests.component.tasks.world import AGENT as AT
from tests.component.tasks.world import ANN, Open, living
from tests.component.tasks.world import World as Service
from tests.profiles import examples
from xep.fluux_agent.confirm import (
    Approvals,
    ApproverRoom,
    Confirm,
    Decision,
    standing_digest_of,
)
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Accepted
from xep.jid import JID

pytestmark = pytest.mark.anyio

BOSS = JID.parse("boss@a.example")
DOMAIN = JID.parse("agent.example.com")
"""The other address of the agent."""
ROOM = JID.parse("ops@rooms.example")

Said = Literal["yes", "always", "no", "nothing"]
NewLedger = Callable[[], Ledger]


@skill(name="send", question="May I send {text} to {to}[, urgently ({urgent})]?")
def send(to: str, text: Annotated[str, FREE_TEXT], urgent: bool = False) -> str:
    """Send a message."""
    return "sent"


@skill(name="tidy", durable=True, open_world=False)
async def tidy(context: Context) -> str:
    """Return nothing of strangers."""
    return ""


@skill(name="browse", durable=True)
async def browse(context: Context) -> str:
    """Return texts of the web."""
    return ""


class Desk:
    """Requests to send messages, on a ledger. `rule` is that of the skill."""

    def __init__(self, ledger: Ledger | None = None, *, days: int = 30, uses: int = 50) -> None:
        self.ledger = ledger or Ledger()
        self.skills: dict[str, Skill] = {one.name: one for one in (send, tidy, browse)}
        self.rule = ConfirmationRule("destructive")
        self.standing = StandingApprovals(
            self.skills.get, lambda _name: self.rule, standing_wording, days, uses
        )
        self.made = 0

    def request(
        self,
        to: str = "bob",
        text: str = "hello",
        *,
        skill: str = "send",
        principal: JID = ALICE,
        at: JID = AGENT,
        asked: tuple[JID, ...] = (),
        approvals: Approvals | None = None,
        delegation: Delegation | None = None,
        parent: str | None = None,
        values: dict[str, Any] | None = None,
        **context: Any,
    ) -> tuple[Row, Admitted]:
        """Make the task of a request."""
        self.made += 1
        declared = self.skills[skill]
        needed = Confirmation(asked or (principal,), "high", 60.0, approvals)
        given = {"to": to, "text": text} if values is None else values
        request = asked_for(
            principal,
            skill=skill,
            target=at,
            json=msgspec.Raw(json.dumps(given).encode()),
            confirmation=needed,
            caller_context=CallerContext(**{"agent": "assistant"} | context),
            delegation=delegation,
        )
        row = self.ledger.add(
            f"t-{self.made}",
            request=request,
            principal=principal,
            target=str(at),
            skill=skill,
            version=declared.version,
            parent=parent,
        )
        return row, Admitted(request, declared, prepare(declared, json=json.dumps(given)))

    def ask(self, *what: Any, **how: Any) -> Confirm | None:
        """Request something; return the question, or None if a standing approval was used."""
        row, admitted = self.request(*what, **how)
        made = ask_before(self.ledger, row, admitted, self.standing)
        if made is None:
            return None
        assert isinstance(made.detail, Confirm)
        return made.detail

    def answer(self, question: Confirm, said: Said, who: JID = ALICE) -> Judgement:
        offer = question.standing
        is_standing = said == "always"
        return questions.decide(
            self.ledger,
            Answerer(who, JID.parse(self.ledger.row(question.task or "").target)),
            Decision(
                id=question.id,
                value="deny" if said == "no" else "approve",
                standing=is_standing,
                hash=offer.hash if is_standing and offer is not None else question.hash,
            ),
        )

    def approve(self, times: int = 3, **how: Any) -> None:
        """Approve so many equal requests."""
        for number in range(times):
            question = self.ask(text=f"number {number}", **how)
            assert question is not None
            assert question.standing is None
            assert self.answer(question, "yes", how.get("principal", ALICE)).error is None

    def grant(self, **how: Any) -> Confirm:
        """Give a standing approval; return the question that has offered it."""
        self.approve(**how)
        question = self.ask(**how)
        assert question is not None
        assert self.answer(question, "always", how.get("principal", ALICE)).error is None
        return question

    def begin(self, row: Row, admitted: Admitted) -> str:
        """Begin a task that was admitted; return its state."""
        tx = Transaction(self.ledger, self.ledger.limits)
        resume(tx, row, Verdict(admitted), standing=self.standing)
        return self.ledger.row(row.id).state

    def uses(self) -> list[int]:
        return [one.uses for one in standing_rows.listed(self.ledger, None, None)]


def test_after_three_equal_approvals_the_question_offers_it(new_ledger: NewLedger) -> None:
    desk = Desk(new_ledger())
    desk.approve(3)
    question = desk.ask(text="four")
    assert question is not None
    offer = question.standing
    assert offer is not None
    assert offer.text.text == (
        "Until 2026-12-24 12:00 UTC and at most 50 times, I may do this without asking: send any"
        " text to *bob*."
    )
    assert [one.name for one in offer.free] == ["text"]
    assert offer.hash is not None
    assert offer.hash.digest == standing_digest_of(AGENT, question)
    other = msgspec.structs.replace(offer, uses=51)
    changed = msgspec.structs.replace(question, standing=other)
    assert standing_digest_of(AGENT, changed) != offer.hash.digest


def test_always_approves_the_action_and_the_ones_that_follow(new_ledger: NewLedger) -> None:
    desk = Desk(new_ledger(), uses=2)
    question = desk.grant()
    assert desk.ledger.row(question.task or "").state == "accepted", "this action is approved"
    assert desk.uses() == [2], "it has needed no use"
    assert desk.ask(text="anything") is None
    assert desk.uses() == [1]
    assert desk.ask(to="carol") is not None, "another recipient"
    assert desk.ask(text="something else") is None
    assert desk.uses() == []
    again = desk.ask()
    assert again is not None, "all uses are taken"
    assert again.standing is not None, "and it is offered again"
    used = [event.detail for event in desk.ledger.audited]
    assert used == [
        f"standing approval {question.id}, of which {left} uses are left" for left in (1, 0)
    ]


def test_what_a_person_has_not_read_is_not_granted(new_ledger: NewLedger) -> None:
    desk = Desk(new_ledger())
    desk.approve(2)
    question = desk.ask()
    assert question is not None
    refused = desk.answer(question, "always").error
    assert refused is not None
    assert refused.text == "The question offers no standing approval."
    assert desk.answer(question, "yes").error is None
    offering = desk.ask()
    assert offering is not None
    by, wrong = Answerer(ALICE, AGENT), offering.hash
    stale = Decision(id=offering.id, value="approve", standing=True, hash=wrong)
    refused = questions.decide(desk.ledger, by, stale).error
    assert refused is not None, "the digest of the action is not that of the offer"
    assert refused.condition == "conflict"
    assert desk.answer(offering, "always").error is None
    assert desk.answer(offering, "always").error is None, "a repetition"
    late = desk.answer(offering, "yes").error
    assert late is not None
    assert late.condition == "conflict"
    assert desk.uses() == [50]


def test_a_stored_approval_that_was_changed_covers_nothing() -> None:
    desk = Desk()
    desk.grant()
    stored = "UPDATE standing_approvals SET question = replace(question, 'bob', 'bobby')"
    desk.ledger.execute(stored)
    assert desk.ask() is not None


def test_free_texts_are_not_stored(new_ledger: NewLedger) -> None:
    desk = Desk(new_ledger())
    desk.approve()
    question = desk.ask(text="my secret")
    assert question is not None
    desk.answer(question, "always")
    (found,) = standing_rows.listed(desk.ledger, ALICE, AGENT)
    assert "my secret" not in found.question
    assert "bob" in found.question


def test_one_denial_ends_it_even_of_an_action_for_which_it_is_not_used(
    new_ledger: NewLedger,
) -> None:
    desk = Desk(new_ledger())
    granted = desk.grant()
    question = desk.ask(asker="misled model", taints=("web",))
    assert question is not None
    judged = desk.answer(question, "no")
    assert judged.ended == (granted.id,)
    plain = desk.ask()
    assert plain is not None
    assert plain.standing is None, "approvals are counted anew"


def test_a_denial_of_several_calls_is_one_of_each(new_ledger: NewLedger) -> None:
    desk = Desk(new_ledger())
    desk.grant()
    desk.skills[SEVERAL_CALLS.name] = SEVERAL_CALLS
    calls = {
        "1. send 1.0.0": {"to": "bob", "text": "hi", "urgent": False},
        "2. tidy 1.0.0": {},
    }
    question = desk.ask(skill=SEVERAL_CALLS.name, values=calls)
    assert question is not None
    assert question.standing is None
    desk.answer(question, "no")
    assert desk.uses() == []


PERSONAL: dict[str, dict[str, Any]] = {
    "herself": {},
    "at the other address": {"at": DOMAIN},
    "her model": {"asker": "model"},
    "her model, after her own texts": {"asker": "model", "taints": ("person",)},
    "her schedule": {"unrequested": True, "own_schedule": True},
    "a task that returns nothing of strangers": {"parent": "t-tidy"},
}
"""Who asks for an action with a standing approval."""
FOREIGN: dict[str, dict[str, Any]] = {
    "a misled model": {"asker": "misled model", "taints": ("web",)},
    "a model that a flow rule has confirmed": {"asker": "misled model"},
    "a model whose calls were approved together": {"asker": "approved"},
    "a model that was misled into nothing": {"asker": "model", "taints": ("web",)},
    "a model that has read a peer": {"asker": "model", "taints": ("peer", "person")},
    "a model that has chosen a value": {"asker": "model", "chosen": ("to",)},
    "an operator": {"operator": "operator"},
    "a watch": {"unrequested": True},
    "a room": {"room": ROOM},
    "an occupant": {"occupant": "alice@a.example"},
    "a task of a skill of the open world": {"parent": "t-browse"},
    "a task below one of the open world": {"parent": "t-below"},
    "a task that is not known": {"parent": "t-gone"},
    "another agent": {
        "delegation": Delegation(origin=BOB, max_hops=2, via=(AGENT,)),
    },
    "approvers": {"asked": (BOSS,)},
    "approvers and the person": {"asked": (ALICE, BOSS)},
    "several": {"approvals": Approvals(need=1, room=ApproverRoom(jid=ROOM))},
}
"""Who is always asked."""


def with_parents(desk: Desk) -> None:
    for task, name, parent in (
        ("t-tidy", "tidy", None),
        ("t-browse", "browse", None),
        ("t-below", "tidy", "t-browse"),
    ):
        desk.ledger.add(task, skill=name, parent=parent)


@pytest.mark.parametrize("how", PERSONAL.values(), ids=PERSONAL)
def test_who_has_it_used(how: dict[str, Any]) -> None:
    desk = Desk()
    with_parents(desk)
    desk.grant()
    assert desk.ask(**how) is None
    desk = Desk()
    with_parents(desk)
    desk.grant(**how)


@pytest.mark.parametrize("how", FOREIGN.values(), ids=FOREIGN)
def test_who_is_asked_all_the_same(how: dict[str, Any]) -> None:
    desk = Desk()
    with_parents(desk)
    desk.grant()
    assert desk.ask(**how) is not None
    assert desk.uses() == [50]
    desk = Desk()
    with_parents(desk)
    desk.approve()
    question = desk.ask(**how)
    assert question is not None
    assert question.standing is None, "nor is it offered"
    (who, *_) = how.get("asked", (ALICE,))
    if "delegation" not in how and "approvals" not in how:
        desk = Desk()
        with_parents(desk)
        for _ in range(4):
            question = desk.ask(**how)
            assert question is not None
            assert desk.answer(question, "yes", who).error is None
        question = desk.ask()
        assert question is not None
        assert question.standing is None, "and these approvals do not count"


@pytest.mark.parametrize(
    "changes",
    [
        {"capabilities": ("shell",)},
        {"capabilities": ("exec:tool",)},
        {"capabilities": ("email:send", "payment:bank")},
        {"cost_usd": 0.2},
        {"described_by": "web"},
        {"described_by": "peer"},
        {"hidden": True},
        {"name": "peers_ask"},
    ],
)
def test_skills_that_are_always_asked_about(changes: dict[str, Any]) -> None:
    desk = Desk()
    changed = dataclasses.replace(send, **changes)
    desk.skills[changed.name] = changed
    desk.approve(skill=changed.name)
    question = desk.ask(skill=changed.name)
    assert question is not None
    assert question.standing is None


@pytest.mark.parametrize("changes", [{"cost_usd": 0.1}, {"described_by": "person"}])
def test_skills_that_are_not_always_asked_about(changes: dict[str, Any]) -> None:
    desk = Desk()
    desk.skills["send"] = dataclasses.replace(send, **changes)
    desk.grant()


@pytest.mark.parametrize(
    "rule", [ConfirmationRule("always"), ConfirmationRule("destructive", (ALICE,))]
)
def test_rules_that_always_ask(rule: ConfirmationRule) -> None:
    desk = Desk()
    desk.rule = rule
    desk.approve()
    question = desk.ask()
    assert question is not None
    assert question.standing is None


def test_another_agent_at_the_address_needs_another_one() -> None:
    desk = Desk()
    desk.grant()
    assert desk.ask(agent="assistant/helper") is not None
    assert desk.ask() is None
    desk = Desk()
    desk.approve(2)
    desk.approve(2, agent="assistant/helper")
    question = desk.ask()
    assert question is not None
    assert question.standing is None, "the approvals are not equal"


def test_a_call_that_does_not_fit_into_a_sentence_is_not_offered() -> None:
    desk = Desk()
    desk.approve(to="b" * 300)
    question = desk.ask(to="b" * 300)
    assert question is not None
    assert question.standing is None


def test_without_uses_nothing_is_offered_and_nothing_used() -> None:
    desk = Desk()
    desk.grant()
    desk.standing.replace(30, 0)
    question = desk.ask()
    assert question is not None
    assert question.standing is None
    desk.standing.replace(1, 1)
    assert desk.ask() is None, "it is as it was given"
    assert desk.uses() == [49]


def test_a_clock_that_is_set_makes_it_neither_longer_nor_shorter() -> None:
    desk = Desk()
    desk.grant()
    desk.ledger.jump(-400 * 86_400)
    assert desk.ask() is None
    desk.ledger.jump(800 * 86_400)
    assert desk.ask() is None
    desk.ledger.now += 30 * DAY
    assert desk.ask() is not None


def test_what_is_no_longer_of_use_is_deleted(new_ledger: NewLedger) -> None:
    desk = Desk(new_ledger())
    desk.grant()
    desk.approve(1, to="carol")
    standing_rows.forget_old(desk.ledger)
    assert (desk.ledger.count("standing_approvals"), desk.ledger.count("equal_approvals")) == (1, 2)
    desk.ledger.now += 30 * DAY
    standing_rows.forget_old(desk.ledger)
    assert (desk.ledger.count("standing_approvals"), desk.ledger.count("equal_approvals")) == (0, 2)
    desk.ledger.now += 151 * DAY
    standing_rows.forget_old(desk.ledger)
    assert desk.ledger.count("equal_approvals") == 0


# -- between admission and the beginning --------------------------------------------------------


@pytest.mark.parametrize("change", ["nothing", "revoked", "expired", "described", "rule"])
def test_it_must_still_apply_when_the_action_begins(change: str) -> None:
    desk = Desk()
    granted = desk.grant()
    row, admitted = desk.request()
    assert ask_before(desk.ledger, row, admitted, desk.standing) is None
    match change:
        case "revoked":
            standing_rows.revoke(desk.ledger, granted.id)
        case "expired":
            desk.ledger.now += 30 * DAY
        case "described":
            changed = dataclasses.replace(send, description="Send another message.")
            admitted = msgspec.structs.replace(admitted, skill=changed)
        case "rule":
            desk.rule = ConfirmationRule("always")
    assert desk.begin(row, admitted) == ("running" if change == "nothing" else "input-required")


def test_the_last_use_is_enough_to_begin() -> None:
    desk = Desk(uses=1)
    desk.grant()
    row, admitted = desk.request()
    assert ask_before(desk.ledger, row, admitted, desk.standing) is None
    assert desk.begin(row, admitted) == "running"


# -- any story, against a model -----------------------------------------------------------------

VARIANTS: dict[str, tuple[dict[str, Any], bool]] = {
    **{name: (how, True) for name, how in PERSONAL.items()},
    **{
        name: (how, False)
        for name, how in FOREIGN.items()
        if name not in ("another agent", "several", "approvers and the person")
    },
}
VERSIONS: dict[str, Skill] = {
    "1": send,
    "2": dataclasses.replace(send, version="2.0.0"),
    "described": dataclasses.replace(send, description="Send it."),
    "shell": dataclasses.replace(send, capabilities=("shell",)),
}
RULES: dict[str, ConfirmationRule] = {
    "destructive": ConfirmationRule("destructive"),
    "never": ConfirmationRule("never"),
    "always": ConfirmationRule("always"),
    "approvers": ConfirmationRule("destructive", (BOSS,)),
}


class Act(msgspec.Struct, frozen=True):
    """Somebody asks for a message, and a question, if there is one, is answered."""

    said: Said
    variant: str
    to: str
    text: str
    person: JID
    caller: str


class Turn(msgspec.Struct, frozen=True):
    """Something changes."""

    what: Literal["version", "rule", "days", "revoke"]
    value: Any = None


acts = st.builds(
    Act,
    said=st.sampled_from(("yes", "yes", "yes", "always", "always", "always", "no", "nothing")),
    variant=st.sampled_from(("herself",) * 9 + tuple(VARIANTS)),
    to=st.sampled_from(("bob", "bob", "bob", "carol")),
    text=st.sampled_from(("hi", "bye")),
    person=st.sampled_from((ALICE, ALICE, ALICE, BOB)),
    caller=st.sampled_from(("assistant", "assistant", "assistant", "assistant/helper")),
)
turns = st.one_of(
    st.builds(Turn, what=st.just("version"), value=st.sampled_from(tuple(VERSIONS))),
    st.builds(Turn, what=st.just("rule"), value=st.sampled_from(tuple(RULES))),
    st.builds(Turn, what=st.just("days"), value=st.sampled_from((1, 10, 30))),
    st.builds(Turn, what=st.just("revoke")),
)
stories = st.lists(st.one_of(*[acts] * 7, turns), min_size=1, max_size=45)


class Oracle:
    """What the specification says of standing approvals, as a model without tables."""

    def __init__(self, uses: int) -> None:
        self.uses = uses
        self.version, self.rule, self.day = "1", "destructive", 0
        self.counts: dict[Any, tuple[Any, int]] = {}
        self.grants: dict[Any, dict[str, Any]] = {}

    def of(self, act: Act) -> tuple[Any, Any]:
        """What is asked for, and on what basis."""
        version = "1" if self.version == "shell" else self.version  # nobody sees the difference
        return (act.person, act.to), (version, self.rules_when, act.caller)

    @property
    def rules_when(self) -> str:
        return "destructive" if self.rule == "approvers" else self.rule

    def is_free(self, act: Act) -> bool:
        """Whether a standing approval can be offered and used."""
        return (
            VARIANTS[act.variant][1]
            and self.rule in ("destructive", "never")
            and self.version != "shell"
        )

    def takes(self, act: Act) -> bool:
        """Use a standing approval, if there is one."""
        what, basis = self.of(act)
        given_ = self.grants.get(what)
        if given_ is None or not self.is_free(act):
            return False
        if given_["basis"] != basis or self.day >= given_["until"] or given_["left"] == 0:
            return False
        given_["left"] -= 1
        return True

    def offers(self, act: Act) -> bool:
        what, basis = self.of(act)
        known, count = self.counts.get(what, (None, 0))
        return self.is_free(act) and known == basis and count >= 3

    def answered(self, act: Act, said: Said, *, offered: bool) -> None:
        what, basis = self.of(act)
        if said == "no":
            self.counts.pop(what, None)
            self.grants.pop(what, None)
        if said in ("yes", "always") and self.is_free(act):
            known, count = self.counts.get(what, (None, 0))
            self.counts[what] = (basis, count + 1 if known == basis else 1)
        if said == "always" and offered:
            self.grants[what] = {"basis": basis, "until": self.day + 30, "left": self.uses}


def play(ledger: Ledger, story: Sequence[Act | Turn]) -> int:
    """Play a story, and compare each step with the model; return how many questions were saved."""
    desk, oracle = Desk(ledger, uses=3), Oracle(3)
    with_parents(desk)
    saved = 0
    for step in story:
        if isinstance(step, Turn):
            match step.what:
                case "version":
                    oracle.version, desk.skills["send"] = step.value, VERSIONS[step.value]
                case "rule":
                    oracle.rule, desk.rule = step.value, RULES[step.value]
                case "days":
                    oracle.day += step.value
                    ledger.now += step.value * DAY
                case "revoke":
                    for one in standing_rows.listed(ledger, None, None):
                        standing_rows.revoke(ledger, one.id)
                        what = (JID.parse(one.person), one.content.action.params[0].text)
                        oracle.grants.pop(what)
                        oracle.counts.pop(what, None)
            continue
        how = VARIANTS[step.variant][0]
        if oracle.rule == "approvers":
            how = {"asked": (BOSS,), **how}
        how = {"principal": step.person, "agent": step.caller, **how}
        question = desk.ask(step.to, step.text, **how)
        taken = oracle.takes(step)
        assert (question is None) == taken, step
        saved += taken
        if question is None:
            continue
        offered = oracle.offers(step)
        assert (question.standing is not None) == offered, step
        if step.said == "nothing":
            continue
        said: Said = "yes" if step.said == "always" and not offered else step.said
        (who, *_) = how.get("asked", (step.person,))
        assert desk.answer(question, said, who).error is None
        oracle.answered(step, said, offered=offered)
    left = sorted(
        given_["left"]
        for given_ in oracle.grants.values()
        if given_["left"] and oracle.day < given_["until"]
    )
    assert sorted(desk.uses()) == left
    return saved


def an_act(said: Said = "yes", variant: str = "herself") -> Act:
    return Act(said, variant, "bob", "hi", ALICE, "assistant")


LONG: list[Act | Turn] = [
    *[an_act()] * 3,
    *[an_act("always")] * 6,
    an_act(variant="a misled model"),
    an_act("always"),
    Turn("version", "2"),
    an_act(),
    Turn("version", "1"),
    *[an_act()] * 4,
    an_act("always"),
    Turn("days", 30),
    an_act("always"),
    an_act(),
    an_act("no", "a room"),
    an_act("always"),
]


@examples(40, 5000)
@given(stories)
@example(LONG)
def test_nothing_runs_without_a_question_unless_the_model_says_so(
    story: list[Act | Turn],
) -> None:
    play(Ledger(), story)


@pytest.mark.ports
def test_a_long_story_saves_questions(new_ledger: NewLedger) -> None:
    assert play(new_ledger(), LONG) == 7


# -- a service ----------------------------------------------------------------------------------


@skill(name="courier", durable=True, destructive=False, open_world=False)
async def courier(context: Context) -> str:
    """Send a message by another task."""
    task = await context.start("send", {"to": "bob", "text": "from the courier"})
    (done,) = await context.wait([task])
    return done.text


@skill(name="carrier", durable=True, destructive=False, open_world=False)
async def carrier(context: Context) -> str:
    """Send messages, about which the person is asked together."""
    calls = [("send", {"to": to, "text": "from the carrier"}) for to in ("bob", "carol")]
    await context.confirm_tasks(calls)
    tasks = [await context.start(name, params) for name, params in calls]
    return ", ".join([done.text for done in await context.wait(tasks)])


class Careful:
    """Approvers of whom the principal has to confirm what is destructive."""

    def needed(self, _request: Request, skill: Skill) -> bool:
        return skill.annotations.destructive

    def at_once(self, request: Request, skill: Skill) -> Confirmation | None:
        return Confirmation((request.principal.bare,)) if self.needed(request, skill) else None

    async def find(self, request: Request, skill: Skill) -> Confirmation | None:
        return self.at_once(request, skill)


SKILLS = (send, courier, carrier)


def careful(**options: Any) -> dict[str, Any]:
    """The options of a service that asks, and has standing approvals."""
    rule, find = ConfirmationRule("destructive"), {one.name: one for one in SKILLS}.get
    standing = StandingApprovals(find, lambda _name: rule, standing_wording, **options)
    return {"approvers": Careful(), "standing": standing}


class Ann:
    """She asks for messages, and answers the questions."""

    def __init__(self, world: Service) -> None:
        self.world = world
        self.seen: set[str] = set()

    async def asked(self, *, standing: bool = False) -> Confirm:
        """Approve the next question."""
        said = await self.world.ear.until(
            lambda one: one.question is not None and one.question.id not in self.seen
        )
        assert said.question is not None
        self.seen.add(said.question.id)
        decision = Decision(id=said.question.id, value="approve", standing=standing)
        await self.world.service.decide(ANN.bare, AT, decision)
        assert isinstance(said.question.content, Confirm)
        return said.question.content

    async def send(self, **how: Any) -> str:
        return await self.world.task("send", params={"to": "bob", "text": "hi"}, **how)

    async def grant(self) -> None:
        for standing in (False, False, False, True):
            task = await self.send()
            await self.asked(standing=standing)
            await self.world.ear.ended(task)

    async def uses(self) -> int:
        return int(await self.world.scalar("SELECT uses FROM standing_approvals"))


async def test_a_service_asks_no_more(open_storage: Open) -> None:
    async with living(open_storage, *SKILLS, **careful()) as world:
        ann = Ann(world)
        await ann.grant()
        accepted = await world.execute(world.call("send", params={"to": "bob", "text": "more"}))
        assert isinstance(accepted, Accepted)
        assert accepted.state == "accepted"
        assert text_of(await world.ear.ended(accepted.task)) == "sent"
        assert await ann.uses() == 49
        assert text_of(await world.ear.ended(await world.task("courier"))) == "sent"
        assert await ann.uses() == 48
        together = await world.task("carrier")
        question = await ann.asked()
        assert "carol" in str(question.action), "only about what is not allowed"
        assert text_of(await world.ear.ended(together)) == "sent, sent"
        assert await ann.uses() == 47


async def test_a_repetition_takes_no_use(open_storage: Open) -> None:
    async with living(open_storage, *SKILLS, **careful()) as world:
        ann = Ann(world)
        await ann.grant()
        tasks = {await ann.send(request="once") for _ in range(3)}
        assert len(tasks) == 1
        await world.ear.ended(tasks.pop())
        assert await ann.uses() == 49


@pytest.mark.ports
async def test_a_kill_after_the_admission_takes_one_use_and_runs_the_action_once(
    open_storage: Open,
) -> None:
    async with living(open_storage, *SKILLS, **careful()) as world:
        await Ann(world).grant()
    async with living(open_storage, *SKILLS, **careful(), running_total=0) as world:
        task = await Ann(world).send()
        assert (await world.get(task)).state == "accepted"
    async with living(open_storage, *SKILLS, **careful()) as world:
        assert text_of(await world.ear.ended(task)) == "sent"
        assert await Ann(world).uses() == 49


@pytest.mark.ports
async def test_two_instances_never_use_it_more_often_than_it_says(
    tmp_path: Path, migrated_url: str
) -> None:
    async with two(tmp_path, migrated_url, *SKILLS, **careful(uses=3)) as worlds:
        ann = Ann(worlds[0])
        await ann.grant()
        states: list[str] = []

        async def send(world: Service) -> None:
            accepted = await world.run("send", mode="async", params={"to": "bob", "text": "hi"})
            assert isinstance(accepted, Accepted)
            states.append(accepted.state)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(send, worlds[number % 2])
        assert sorted(states) == ["accepted"] * 3 + ["input-required"] * 5
        assert await ann.uses() == 0
