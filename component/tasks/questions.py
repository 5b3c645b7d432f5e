"""Asks questions, judges decisions and answers, and lets questions expire; the action that a person
is asked to confirm, and the digest over it (CNF-011 to CNF-019).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from component.skills.errors import DeclarationError
from component.skills.form_fields import Property, properties_of
from component.skills.forms import InvalidForm, form_values, schema_form
from component.skills.inputs import Arguments
from component.skills.skill import Skill
from component.skills.validation import SchemaValidator
from component.tasks import question_rows, rows, standing_rows, votes
from component.tasks.changes import KEEP, Change, Transaction, change
from component.tasks.journal import Recorded, decided, end_step, nothing_ran
from component.tasks.protocol import Doubt
from component.tasks.queries import whole_task
from component.tasks.question_rows import Answerer, InputRow, doubt_about
from component.tasks.request import Request
from component.tasks.rows import TERMINAL, Row
from xep.binding.escaping import without_forbidden
from xep.characters import forbidden
from xep.data_forms import FORM_TYPE, Form
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import (
    LARGEST_EXACT,
    Action,
    ActionParam,
    ActionParams,
    Confirm,
    Decision,
    Risk,
    Standing,
    digest_of,
    parameters_of,
)
from xep.fluux_agent.errors import Helps
from xep.fluux_agent.execute import State
from xep.fluux_agent.task import (
    NAMESPACE,
    Failure,
    FailureText,
    Input,
    InputAnswer,
    InputSchema,
    Question,
    Task,
)
from xep.hashes import Hash
from xep.jid import JID
from xep.stanza_error import StanzaError

Schema: TypeAlias = Mapping[str, Any]


def encoded_reply(values: dict[str, Any] | None, reason: str = "") -> str:
    """Return the JSON to store of an answer, equal for equal content; None: it was declined, for
    this reason.
    """
    kept = {"declined": reason} if values is None else {"value": values}
    return msgspec.json.encode(kept, order="deterministic").decode()


def input_for(
    text: str,
    schema: msgspec.Raw,
    *,
    id: str,  # noqa: A002 - the attribute's own name
    revision: int,
    expires: datetime,
) -> Input:
    """Return the question `text`, whose answer must match `schema`, a JSON Schema of an object."""
    return Input(
        id=id,
        revision=revision,
        expires=expires,
        questions=(Question(text=text, lang="en"),),
        schema=InputSchema(json=schema),
        form=schema_form(schema, NAMESPACE, title=text),
    )


def schema_of(question: Input) -> dict[str, Any]:
    """Return the JSON Schema that an answer must match."""
    return msgspec.json.decode(question.schema.json, type=dict[str, Any])


def read_answer(schema: Schema, answer: InputAnswer) -> dict[str, Any] | None:
    """Decode an answer, None if the person declines. Raises StanzaError: `malformed`, or
    `invalid-param` for a value of the wrong type.
    """
    if answer.form is not None and answer.params is None:
        return _read_form(schema, answer.form)
    if answer.params is None or answer.form is not None:
        raise errors.malformed("An answer contains either <params/> or a form.")
    try:
        values = msgspec.json.decode(answer.params.json)  # its size was checked when it was read
    except (ValueError, RecursionError) as error:
        raise errors.malformed(f"The JSON of the answer cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise errors.malformed("The answer is not a JSON object.")
    return {key: _plain(value) for key, value in values.items()}


def only_value(question: Input) -> Property | None:
    """Return the property that a text answers: the only required one, else the only one."""
    properties = properties_of(schema_of(question))
    needed = [each for each in properties if each.required]
    able = needed or [each for each in properties if is_sayable(each)]
    return able[0] if len(able) == 1 and is_sayable(able[0]) else None


def is_yes_or_no(question: Input) -> bool:
    """Return whether yes and no answer the question: it has exactly one property, a boolean."""
    declared = only_value(question)
    return declared is not None and declared.kind == "boolean"


def is_sayable(declared: Property) -> bool:
    """Return whether the value of a property can be given in words."""
    return declared.kind not in ("json", "lines")


def check(schema: Schema, values: Mapping[str, Any]) -> None:
    """Validate the values. Raises StanzaError: `invalid-param`, which names the property."""
    try:
        wrong = SchemaValidator(schema).mismatch(dict(values))
    except DeclarationError as error:
        raise errors.invalid_param("answer", f"cannot be validated: {error}") from None
    if wrong is not None:
        raise errors.invalid_param(wrong.member or "answer", wrong.reason)


def _read_form(schema: Schema, form: Form) -> dict[str, Any] | None:
    if form.type == "cancel":
        return None
    if form.type != "submit":
        raise errors.malformed('The form of an answer has type "submit" or "cancel".')
    try:
        values = msgspec.json.decode(form_values(form, schema, NAMESPACE))
    except InvalidForm as error:
        (name, reason), *others = error.reasons.items()
        if name == FORM_TYPE:
            raise errors.malformed(str(error)) from None
        said = "; ".join((reason, *(f"{other}: {why}" for other, why in others)))
        raise errors.invalid_param(name, said) from None
    return {key: _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    """Normalise JSON: 1.0 and 1 become the same number."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_EXACT:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def ask_question(
    tx: Transaction, row: Row, content: Confirm | Input, asked: Iterable[JID], step: str = ""
) -> Change:
    """Ask `asked` for a confirmation or an input, which any one of them can answer: the task is
    `input-required`, its run ends here, and only rows remain.

    The answer to an input becomes the result of `step`. If the deadline has passed the change is
    the failure of the task instead, and nobody is asked. Raises TransitionError.
    """
    assert content.expires is not None, "a question needs a time at which it expires"
    due = rows.next_due(tx, row, rows.steady(tx, rows.milliseconds(content.expires)))
    made = change(tx, row, "input-required", content, owner=None, wake_at=due)
    if made.row.state != "input-required":
        return made
    question = question_rows.insert(tx, made.row, content, step, asked)
    return msgspec.structs.replace(made, question=question)


def lapse(tx: Transaction, row: Row) -> Change | None:
    """Fail a task whose open question has expired; return None if none has.

    It does not count as a denial (CNF-038, CNF-039, INP-013). If the deadline of the task has
    passed too, that is the reason of the failure (EXE-026).
    """
    if row.state != "input-required":
        return None
    found = question_rows.open_of(tx, row.id)
    late = rows.is_late(tx, row)
    if found is None or not (late or found.lapsed(tx.steady)):
        return None
    question_rows.close(tx, row.id, "expired")
    error = errors.confirmation_expired() if found.kind == "confirm" else errors.input_expired()
    if late:
        error = errors.deadline_expired()
    made = change(tx, row, "failed", Failure.of(error, repeatable=nothing_ran(tx, row.id)))
    return msgspec.structs.replace(made, question=question_rows.question_with(tx, made.row))


def ask_input(
    tx: Transaction, row: Row, ids: tuple[str, str], text: str, schema: msgspec.Raw, expires: int
) -> Change:
    """Ask the principal a question of the skill (INP-001), otherwise like `ask_question`.

    `ids` are the step that asks, and a new id (INP-003). `expires` comes from `lapses`.
    """
    step, id_ = ids
    put = input_for(text, schema, id=id_, revision=row.revision + 1, expires=rows.moment(expires))
    return ask_question(tx, row, put, (JID.parse(row.principal),), step)


def ask_relayed(
    tx: Transaction, row: Row, original: Confirm | Input, id_: str, step: str
) -> Change:
    """Ask the principal of a task what another agent asks, otherwise like `ask_question`. What
    will be done, the agent that asks and the digest stay as they are (DLG-020, DLG-030); the
    identifier is a new one.
    """
    wanted = original.expires
    expires = lapses(
        tx.now,
        tx.limits.ask_expires_s
        if wanted is None
        else max(1.0, (rows.milliseconds(wanted) - tx.now) / 1000),
        row.deadline,
    )
    principal = JID.parse(row.principal)
    lapse_at = rows.moment(expires)
    put: Confirm | Input
    if isinstance(original, Confirm):
        put = msgspec.structs.replace(
            original,
            id=id_,
            task=row.id,
            principal=principal,
            expires=lapse_at,
            approvals=None,
            standing=None,
        )
    else:
        text, schema = original.questions[0].text, original.schema.json
        made = input_for(text, schema, id=id_, revision=row.revision + 1, expires=lapse_at)
        put = msgspec.structs.replace(made, agent=original.agent)
    return ask_question(tx, row, put, (principal,), step)


# Decisions and answers. The task's row is locked: of several answers, from any person and any
# client, the first one that is committed counts.

_SOME: Final = "und"
"""The language tag of a text in an unknown language (RFC 5646 §4.1); a text always has a tag."""


class Judgement(msgspec.Struct, frozen=True):
    """The outcome of a decision or an answer.

    `error` is the reason for a refusal; `change` must be published even then, such as the expiry of
    the question, and executed if it is to running with an owner. `task` is the task after an answer
    that is not refused. `doubt` says why the answer may not be meant for the question. `missing` is
    the number of approvals that are still needed. `ended` are the standing approvals that a denial
    has ended.
    """

    error: StanzaError | None = None
    change: Change | None = None
    task: Task | None = None
    doubt: Doubt | None = None
    missing: int = 0
    ended: tuple[str, ...] = ()


def decide(tx: Transaction, by: Answerer, decision: Decision) -> Judgement:
    """Judge a decision, in the order of the specification (CNF-032).

    An approved task is queued: before it runs, the principal's permission is checked again
    (CNF-042).
    """
    found = _confirmation_of(tx, by, decision.id)
    if found is None:
        return Judgement(errors.unknown_confirmation())
    row, put = found
    question = put.content
    assert isinstance(question, Confirm)
    is_of_agent = str(by.who.bare) == row.principal and rows.outline_of(row).delegation
    if decision.hash is None and is_of_agent:
        return Judgement(errors.malformed("decision: delegated work is decided with its digest"))
    if (differs := _difference(decision, question)) is not None:
        return Judgement(differs)
    said = "always" if decision.standing else decision.value
    if put.state == "answered":
        if put.answer == said:
            return Judgement()
        return Judgement(errors.conflict("The question has already been decided differently."))
    refused = _closed(tx, row, put)
    if refused is not None:
        return refused
    if decision.value == "approve" and (doubt := doubt_about(tx, by, put.id)):
        return Judgement(doubt=doubt)
    approvals = question.approvals
    if approvals is not None:
        is_own = by.who.bare in rows.request_of(row).requesters
        if is_own and not approvals.requester:
            return Judgement(errors.forbidden("Somebody else than the requester has to decide."))
        assert put.hash is not None, "a confirmation has a digest"
        vote = votes.Vote(by.who.bare, decision.value, put.hash, by.by_reaction)
        votes.store(tx, put.id, vote)
        if votes.outcome(votes.votes_on(tx, put.id), approvals, put.hash) is None:
            return _still_open(tx, row, put, question)
    question_rows.store_answer(tx, put, said, by.who)
    ended = _apply_to_kind(tx, row, put, decision)
    if put.step:  # the skill, or another agent, needs the decision
        why = without_forbidden((decision.reason or "").strip())
        end_step(tx, row, put.step, Recorded(decided(decision.value, why)))
    if put.step or decision.value == "approve":
        return Judgement(change=go_on(tx, row, None), ended=ended)
    others = approvals is not None or question_rows.number_asked(tx, put.id) > 1
    helps: Helps = "approval" if others else "nothing"
    failure = Failure.of(errors.denied(helps), repeatable=nothing_ran(tx, row.id))
    if decision.reason is not None and decision.reason.strip():
        reason = without_forbidden(decision.reason.strip())
        text = FailureText(text=reason, lang=by.lang or _SOME)
        failure = msgspec.structs.replace(failure, texts=(text,))
    return Judgement(change=change(tx, row, "failed", failure), ended=ended)


def _difference(decision: Decision, question: Confirm) -> StanzaError | None:
    """Return why a decision is about something else than the question, or than its offer of a
    standing approval; None if it is not.
    """
    about: Confirm | Standing = question
    if decision.standing:
        if question.standing is None:
            return errors.conflict("The question offers no standing approval.")
        about = question.standing
    if decision.hash is not None and decision.hash != about.hash:
        return errors.conflict("The digest does not match the question.")
    return None


def _apply_to_kind(tx: Transaction, row: Row, put: InputRow, decision: Decision) -> tuple[str, ...]:
    """Count an approval, store a standing one, or end those of a kind that is denied; return their
    ids.
    """
    if decision.value == "deny":
        return tuple(standing_rows.end_kinds(tx, put.id))
    principal, agent = JID.parse(row.principal), rows.request_of(row).target
    standing_rows.count_approval(tx, put.id, principal, agent)
    if decision.standing:
        question = put.content
        assert isinstance(question, Confirm)
        standing_rows.grant(tx, question, principal, agent)
    return ()


def withdraw(tx: Transaction, by: Answerer, question: str) -> Judgement:
    """Withdraw the approval that a person has given by a reaction, while the question is open
    (CNF-062).
    """
    found = _confirmation_of(tx, by, question)
    if found is None or _closed(tx, *found) is not None:
        return Judgement()
    row, put = found
    content = put.content
    assert isinstance(content, Confirm)
    if not votes.withdraw(tx, put.id, by.who.bare):
        return Judgement()
    return _still_open(tx, row, put, content)


def _confirmation_of(tx: Transaction, by: Answerer, id_: str) -> tuple[Row, InputRow] | None:
    """Return a confirmation that a person can decide, and its task, which is locked."""
    if by.room is None:
        task = question_rows.confirmation_to(tx, by.who, by.at, id_)
    else:
        task = question_rows.confirmation_in(tx, by.room, id_)
    row = None if task is None else rows.load(tx, task)
    # Read after the task is locked: it may just have been decided.
    put = None if row is None else question_rows.input_row(tx, id_)
    return None if row is None or put is None else (row, put)


def _still_open(tx: Transaction, row: Row, put: InputRow, question: Confirm) -> Judgement:
    """Return the outcome of a vote that does not decide: an event says how many have approved."""
    approvals = question.approvals
    assert approvals is not None, "the first answer decides"
    given = votes.given(votes.votes_on(tx, put.id), put.hash or "")
    missing = approvals.need - given
    if given == approvals.given:
        return Judgement(missing=missing)
    approvals = msgspec.structs.replace(approvals, given=given)
    question = msgspec.structs.replace(question, approvals=approvals)
    question_rows.set_content(tx, put, question)
    return Judgement(change=change(tx, row, "input-required", question), missing=missing)


def ask_also(tx: Transaction, id_: str, people: Iterable[JID]) -> Change | None:
    """Ask more people an open confirmation; return the change, or None if all were asked before."""
    put = question_rows.input_row(tx, id_)
    row = None if put is None else rows.load(tx, put.task)
    put = None if row is None else question_rows.input_row(tx, id_)
    if row is None or put is None or _closed(tx, row, put) is not None:
        return None
    question = question_rows.ask_also(tx, row, put, people)
    if question is None:
        return None
    made = change(tx, row, "input-required", question.content)
    return msgspec.structs.replace(made, question=question)


def fail_unanswerable(tx: Transaction, id_: str, why: str) -> Change | None:
    """Fail the task of an open confirmation that nobody can give; `why` is a sentence (CNF-005)."""
    put = question_rows.input_row(tx, id_)
    row = None if put is None else rows.load(tx, put.task)
    put = None if row is None else question_rows.input_row(tx, id_)
    if row is None or put is None or _closed(tx, row, put) is not None:
        return None
    question_rows.close(tx, row.id, "withdrawn")
    error = errors.confirmation_unavailable(why)
    failure = Failure.of(error, repeatable=nothing_ran(tx, row.id))
    return change(tx, row, "rejected", failure)


def answer(tx: Transaction, by: Answerer, given: InputAnswer, owner: str | None) -> Judgement:
    """Judge an answer, in the order of the specification (INP-010).

    An answer that counts becomes the result of the step that asked (`encoded_reply`). `owner` is
    the instance that has a slot to run the task at once; with None the task is queued. A refusal
    counts like a denial of a confirmation: it needs no certainty, because it does no harm.
    """
    row = rows.find(tx, by.who, by.at, given.task, lock=True)
    if row is None:
        return Judgement(errors.unknown_task())
    put = question_rows.input_row(tx, given.input)
    if put is None or put.task != row.id or put.kind != "input":
        return Judgement(errors.unknown_input())
    question = put.content
    assert isinstance(question, Input)
    if put.state == "answered":
        if _is_same(put, question, given):
            return Judgement(task=whole_task(tx, row))
        return Judgement(errors.conflict("The question has already been answered differently."))
    if given.revision != put.revision:
        return Judgement(errors.conflict("The revision does not match the question."))
    refused = _closed(tx, row, put)
    if refused is not None:
        return refused
    try:
        schema = schema_of(question)
        values = read_answer(schema, given)
        if values is not None:
            check(schema, values)
    except StanzaError as error:
        return Judgement(error)
    if values is not None:
        doubt = doubt_about(tx, by, put.id, stands=is_yes_or_no(question))
        if doubt is not None:
            return Judgement(doubt=doubt)
    made = go_on(tx, row, owner)
    if made.row.state not in TERMINAL:
        reply = encoded_reply(values, without_forbidden(by.reason.strip()))
        question_rows.store_answer(tx, put, reply, by.who)
        end_step(tx, row, put.step, Recorded(reply))
    return Judgement(change=made, task=whole_task(tx, made.row))


def _is_same(put: InputRow, question: Input, given: InputAnswer) -> bool:
    if given.revision != put.revision:
        return False
    try:
        values = read_answer(schema_of(question), given)
        if values is None:  # whatever the reason
            return "declined" in msgspec.json.decode(put.answer or "{}")
        return encoded_reply(values) == put.answer
    except StanzaError:
        return False


def _closed(tx: Transaction, row: Row, put: InputRow) -> Judgement | None:
    """Return why a question no longer accepts an answer; None if it does."""
    if put.lapsed(tx.steady):
        # Whichever runs first notices the expiry: the timer, or the late answer.
        made = lapse(tx, row) if put.state == "open" else None
        return Judgement(errors.expired(), made)
    if put.state != "open" or row.state != "input-required":
        return Judgement(errors.conflict("The task no longer waits for this question."))
    return None


def go_on(tx: Transaction, row: Row, owner: str | None) -> Change:
    """Run a task that has its answer at once, or queue it."""
    if row.queue is not None:  # its queue may be full; claiming checks that
        owner = None
    to: State = "accepted" if owner is None else "running"
    owner = KEEP if owner is None else owner
    return change(tx, row, to, owner=owner, wake_at=rows.next_due(tx, row))


# Confirmations.

SEVERAL_CALLS: Final = "several-calls"
"""The name of the skill whose parameters are calls of other skills (`joint_confirmation`)."""
ALGORITHM: Final = "sha-256"
MOST_BYTES: Final = 16_384
"""The maximum size of the parameters as JSON: a person cannot review more."""
MOST_LINES: Final = 100
"""The maximum number of lines of the texts in the parameters."""


def confirm_for(
    request: Request,
    skill: Skill,
    arguments: Arguments,
    *,
    task: str,
    question: str,
    expires: datetime,
) -> Confirm:
    """Return the message that asks for the confirmation of a request to run `skill`; `question` is
    a new id.

    Raises StanzaError: `invalid-param` (CNF-019), or `too-big` if the parameters are too large to
    show to a person (CNF-051).
    """
    action = action_of(skill, arguments)
    _refuse_unless_showable(parameters_of(action))
    needed = request.confirmation
    confirm = Confirm(
        id=question,
        task=task,
        principal=request.principal.bare,
        action=action,
        risk=Risk(level="medium" if needed is None else needed.risk),
        expires=expires,
        approvals=None if needed is None else needed.approvals,
    )
    digest = Hash(algo=ALGORITHM, digest=digest_of(request.target, confirm))
    return msgspec.structs.replace(confirm, hash=digest)


def check_size(size: int) -> None:
    """Raise StanzaError, `policy-violation`, if so many bytes are too large to show to a person."""
    if size > MOST_BYTES:
        raise errors.too_big_to_confirm(size, MOST_BYTES)


def action_of(skill: Skill, arguments: Arguments) -> Action:
    """Return the skill and all its parameters, with the defaults of the input schema (CNF-013).

    Raises StanzaError, `invalid-param`, for a value that no digest can cover (CNF-019).
    """
    texts: list[ActionParam] = []
    others: dict[str, Any] = {}
    # Sets have no order of their own, so they are sorted: the order must not depend on the process.
    values = msgspec.to_builtins(arguments, str_keys=True, order="deterministic")
    for name, value in values.items():
        _refuse_unless_canonical(name, value)
        if isinstance(value, str) and forbidden.search(value) is None:
            texts.append(ActionParam(name=name, text=value))
        else:
            others[name] = value
    return Action(
        type=skill.name,
        version=skill.version,
        params=tuple(texts),
        json_params=ActionParams(json=msgspec.Raw(msgspec.json.encode(others))) if others else None,
    )


def covers(confirm: Confirm, request: Request, skill: Skill, arguments: Arguments) -> bool:
    """Return whether what would run now is exactly the action confirmed (CNF-040, CNF-041)."""
    now = msgspec.structs.replace(
        confirm, principal=request.principal.bare, action=action_of(skill, arguments)
    )
    return confirm.hash is not None and digest_of(request.target, now) == confirm.hash.digest


def lapses(now: int, seconds: float, deadline: int | None) -> int:
    """Return when a question asked at `now` expires, in milliseconds since 1970: a whole second, so
    that people and programs read the same time, and never after the deadline (CNF-015, INP-014).
    """
    wanted = -(-(now + round(seconds * 1000)) // 1000) * 1000
    if deadline is None:
        return wanted
    # Rows store deadlines rounded up to a millisecond, so this may be after the exact deadline.
    return min(wanted, deadline - (deadline % 1000 != 0))


def _refuse_unless_showable(values: Mapping[str, Any]) -> None:
    size = len(json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    lines = 0
    left: list[Any] = list(values.values())
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        lines += len(value.splitlines()) if isinstance(value, str) else 0
    lines += sum(not isinstance(value, str) for value in values.values())
    if size > MOST_BYTES or lines > MOST_LINES:
        raise errors.too_big_to_confirm(size, MOST_BYTES, lines, MOST_LINES)


def _refuse_unless_canonical(name: str, value: Any) -> None:
    import rfc8785  # noqa: PLC0415

    try:
        rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        reason = (
            f"contains an integer beyond {LARGEST_EXACT}, which no digest can cover;"
            " send it as text"
        )
    except rfc8785.FloatDomainError:
        reason = "contains a number that is not finite, which no digest can cover"
    except (ValueError, RecursionError):
        reason = (
            "contains a value without a canonical JSON form (RFC 8785), so no digest can cover it"
        )
    else:
        return
    raise errors.invalid_param(name, reason)
