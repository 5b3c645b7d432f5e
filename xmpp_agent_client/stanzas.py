"""The stanzas of callers, without I/O: requests to send, and what answers and messages mean."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack
from xml.etree.ElementTree import Element

import msgspec

from xep.binding import ContentError, Payload, decode, encode
from xep.characters import forbidden
from xep.data_forms import FORM_TYPE, Form
from xep.disco import InfoQuery, ItemsQuery
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent import confirm as wire_confirm
from xep.fluux_agent import execute as wire_execute
from xep.fluux_agent import skills as wire_skills
from xep.fluux_agent import task as wire_task
from xep.fluux_agent.errors import CONDITIONS
from xep.fluux_agent.plan import PlanSteps
from xep.jid import JID, JIDError
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError
from xmpp_agent_client.errors import (
    AgentError,
    InvalidAnswerError,
    error_of,
    error_of_failure,
)
from xmpp_agent_client.model import (
    AgentInfo,
    Confirmation,
    File,
    Output,
    Parameter,
    Plan,
    PlanStep,
    Progress,
    Question,
    Result,
    Skill,
    StandingOffer,
    Task,
    text_in,
)

P = TypeVar("P", bound=Payload)

ANSWERS: Final[tuple[type[Payload], ...]] = (
    wire_skills.SkillsQuery,
    wire_execute.Result,
    wire_execute.Accepted,
    wire_task.Task,
    wire_task.Tasks,
    wire_task.Events,
)
"""The payloads of results, besides those of service discovery."""
REQUESTS: Final[tuple[type[Payload], ...]] = (
    wire_execute.Execute,
    wire_task.InputAnswer,
    wire_task.Cancel,
    wire_confirm.Decision,
)
"""The payloads that only requests have."""
NOTICES: Final[tuple[type[Payload], ...]] = (wire_task.Task, wire_confirm.Confirm)
"""The payloads of messages from agents."""


class Request(msgspec.Struct, frozen=True):
    """An IQ to send: its type and its payload. Every request of this module may be repeated."""

    type: Literal["get", "set"]
    payload: Payload

    @property
    def xml(self) -> str:
        """The payload as XML text, the same each time."""
        return encode(self.payload)


class Options(TypedDict, total=False):
    """How a skill is executed.

    texts: parameters as texts, which the agent converts as the schema of the skill says.
    request: identifies the request: with the same one, from any client of the account, it never
        runs twice. By default a new one.
    version: that of the skill, as it was read: if the agent has another one, it does not run.
    mode: ``inline`` requests the result now or an error, ``async`` a task.
    deadline: when the result becomes useless, with a time zone.
    priority: among your own tasks.
    context: groups tasks.
    thread: the chat that this belongs to.
    earlier: ids of tasks that this one continues.
    """

    texts: Mapping[str, str]
    request: str
    version: str
    mode: Literal["auto", "inline", "async"]
    deadline: datetime
    priority: Literal["low", "normal", "high"]
    context: str
    thread: str
    earlier: tuple[str, ...]


class Page(msgspec.Struct, frozen=True):
    """Where a list continues: the key after which the next page begins; None at the end."""

    after: str | None


# -- requests ------------------------------------------------------------------------------------


def info_request() -> Request:
    """Request the identities and features of an address."""
    return Request("get", InfoQuery())


def items_request(after: str | None = None) -> Request:
    """Request the items of an address."""
    return Request("get", ItemsQuery(page=_page(after)))


def skills_request(
    *,
    skill: str | None = None,
    search: str | None = None,
    schemas: bool = False,
    after: str | None = None,
) -> Request:
    """Request one skill, the skills that contain all words of a search, or all of them."""
    query = wire_skills.SkillsQuery(skill=skill, search=search, schemas=schemas, page=_page(after))
    return Request("get", query)


def execute_request(
    skill: str,
    params: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Request:
    """Request a run of a skill.

    Raises:
        ValueError: a value has no JSON, or a text has a character that XML does not allow.
    """
    given: dict[str, Any] = {**options}
    texts = given.pop("texts", {})
    for name, text in texts.items():
        if forbidden.search(text) is not None:
            raise ValueError(
                f"the text of {name} has a character that XML does not allow: pass it in `params`,"
                " which are sent as JSON"
            )
        if name in (params or {}):
            raise ValueError(f"{name} is given both as a value and as a text")
    earlier = given.pop("earlier", ())
    execute = wire_execute.Execute(
        skill=skill,
        params=tuple([wire_execute.Param(name=name, text=text) for name, text in texts.items()]),
        json_params=wire_execute.Params(json=_json(params)) if params else None,
        earlier=tuple([wire_execute.Earlier(task=task) for task in earlier]),
        **given,
    )
    return Request("set", execute)


def task_request(task: str) -> Request:
    """Request the state of a task."""
    return Request("get", wire_task.Task(id=task))


def tasks_request(
    *,
    state: wire_execute.State | None = None,
    context: str | None = None,
    since: datetime | None = None,
    after: str | None = None,
) -> Request:
    """Request a page of your tasks, the latest first."""
    query = wire_task.Tasks(state=state, context=context, since=since, page=_page(after))
    return Request("get", query)


def events_request(task: str, since: int, after: str | None = None) -> Request:
    """Request the events of a task after a revision."""
    return Request("get", wire_task.Events(id=task, since=since, page=_page(after)))


def cancel_request(task: str, reason: str | None = None) -> Request:
    """Request the cancellation of a task."""
    return Request("set", wire_task.Cancel(id=task, reason=reason))


def answer_request(question: Question, values: Mapping[str, Any] | None) -> Request:
    """Answer a question; None declines."""
    answer = wire_task.InputAnswer(
        task=question.task, input=question.id, revision=question.revision
    )
    if values is None:
        answer = msgspec.structs.replace(answer, form=Form(type="cancel"))
    else:
        answer = msgspec.structs.replace(answer, params=wire_task.AnswerParams(json=_json(values)))
    return Request("set", answer)


def decision_request(
    confirmation: Confirmation,
    *,
    approve: bool,
    standing: bool = False,
    reason: str | None = None,
) -> Request:
    """Decide a confirmation, with its digest, or with that of the offer if `standing` accepts it.

    Raises:
        ValueError: the confirmation offers no standing approval, or is denied.
    """
    offer = confirmation.standing
    if standing and (offer is None or not approve):
        raise ValueError("only an approval of a confirmation that offers it can be a standing one")
    decision = wire_confirm.Decision(
        id=confirmation.id,
        value="approve" if approve else "deny",
        standing=standing,
        reason=reason,
        hash=offer.hash if standing and offer is not None else confirmation.hash,
    )
    return Request("set", decision)


# -- answers -------------------------------------------------------------------------------------


def read_error(error: Element | None) -> AgentError:
    """Return the exception for the ``<error/>`` of a stanza."""
    return error_of(StanzaError.of(error, CONDITIONS))


def read_info(payload: Element | None, address: str) -> AgentInfo | None:
    """Return what an agent says about itself; None if the address is not an agent."""
    info = _read(InfoQuery, payload)
    features = frozenset([feature.var for feature in info.features])
    if AGENT not in features:
        return None
    details: dict[str, str] = {}
    for form in info.forms:
        if form.form_type == AGENT:
            fields = [field for field in form.fields if field.var != FORM_TYPE]
            details |= {field.var or "": "\n".join(field.values) for field in fields}
    names = [one.name for one in info.identities if one.name]
    name = details.get("agent_name") or (names[0] if names else address)
    return AgentInfo(address=address, name=name, features=features, details=details)


def read_items(payload: Element | None) -> tuple[list[str], Page]:
    """Return the addresses of the items without a node, and where the list continues."""
    items = _read(ItemsQuery, payload)
    addresses = [str(item.jid) for item in items.items if item.node is None]
    return addresses, _next(items.page, len(items.items))


def read_skills(payload: Element | None, lang: str = "en") -> tuple[list[Skill], Page]:
    """Return a page of skills, and where the list continues."""
    answer = _read(wire_skills.SkillsQuery, payload)
    return [_skill(one, lang) for one in answer.skills], _next(answer.page, len(answer.skills))


def read_executed(payload: Element | None, agent: str) -> Result | Task:
    """Return the result of an execute request, or the task that it has become."""
    if payload is not None and payload.tag == wire_execute.Result.xml_tag:
        return _result(_read(wire_execute.Result, payload))
    accepted = _read(wire_execute.Accepted, payload)
    return Task(
        agent=agent,
        id=accepted.task,
        state=accepted.state,
        revision=accepted.revision,
        retain_until=accepted.retain_until,
        poll_after=accepted.poll_after,
    )


def read_task(payload: Element | None, agent: str, lang: str = "en") -> Task:
    """Return the state of a task."""
    return _task(_read(wire_task.Task, payload), agent, lang)


def read_tasks(payload: Element | None, agent: str, lang: str = "en") -> tuple[list[Task], Page]:
    """Return a page of tasks, and where the list continues."""
    answer = _read(wire_task.Tasks, payload)
    tasks = [_task(one, agent, lang) for one in answer.tasks]
    return tasks, _next(answer.page, len(tasks))


def read_events(payload: Element | None, agent: str, lang: str = "en") -> tuple[list[Task], Page]:
    """Return a page of the events of a task, and where the list continues.

    A revision that is missing in the list is no longer stored.
    """
    answer = _read(wire_task.Events, payload)
    tasks = [_task(one, agent, lang) for one in answer.tasks]
    return tasks, _next(answer.page, len(tasks))


# -- messages ------------------------------------------------------------------------------------


def read_message(message: Element, lang: str = "en") -> list[Task | Confirmation]:
    """Return the events and the confirmations in a message; a malformed one is left out.

    The sender is that of the message, so the caller compares it with the agent that it uses.
    """
    if message.get("type") == "error":
        return []
    try:
        # Its spelling is checked: servers distinguish addresses that are one JID by RFC 7622.
        sender = str(JID.parse_delivered(message.get("from", "")).bare)
    except JIDError:
        return []
    found: list[Task | Confirmation] = []
    for child in message:
        try:
            if child.tag == wire_task.Task.xml_tag:
                found.append(_task(decode(wire_task.Task, child), sender, lang))
            elif child.tag == wire_confirm.Confirm.xml_tag:
                text = message.findtext("{*}body", "")
                found.append(_confirmation(decode(wire_confirm.Confirm, child), sender, text))
        except (ContentError, InvalidAnswerError):
            continue
    return found


def bare(address: str) -> str | None:
    """Return a JID without its resource, in the form in which JIDs are compared; None if it is not
    one.
    """
    try:
        return str(JID.parse(address).bare)
    except JIDError:
        return None


# -- from the wire to the model ------------------------------------------------------------------


def _read(cls: type[P], payload: Element | None) -> P:
    if payload is None or payload.tag != cls.xml_tag:
        found = "nothing" if payload is None else payload.tag
        raise InvalidAnswerError(f"expected {cls.xml_tag} as the answer, got {found}")
    try:
        return decode(cls, payload)
    except ContentError as error:
        raise InvalidAnswerError(f"the answer is not valid: {error}") from error


def _page(after: str | None) -> ResultSet | None:
    return None if after is None else ResultSet(after=after)


def _next(page: ResultSet | None, size: int) -> Page:
    """Return where a list continues: nowhere if the page is empty, or is all that was counted."""
    if page is None or page.last is None or size == 0:
        return Page(None)
    start = None if page.first is None else page.first.index
    if page.count is not None and start is not None and start + size >= page.count:
        return Page(None)
    return Page(page.last)


def _json(values: Mapping[str, Any]) -> msgspec.Raw:
    try:
        # msgspec alone would write NaN as null.
        plain = msgspec.to_builtins(values, str_keys=True)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return msgspec.Raw(text.encode())
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the values have no JSON: {error}") from error


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidAnswerError(f"the answer has JSON that is not valid: {error}") from error


def _skill(skill: wire_skills.SkillDescription, lang: str) -> Skill:
    schemas = {schema.direction: _object(schema.json) for schema in skill.schemas}
    return Skill(
        name=skill.name,
        version=skill.version,
        title=text_in(skill.titles, lang) or skill.name,
        description=text_in(skill.descriptions, lang),
        tags=skill.tags,
        examples=tuple([example.text for example in skill.examples]),
        parameters=tuple(
            [
                Parameter(
                    name=param.name,
                    type=param.type,
                    required=param.required,
                    description=text_in(param.descriptions, lang),
                )
                for param in skill.params
            ]
        ),
        annotations=skill.annotations,
        duration_ms=None if skill.typical is None else skill.typical.duration_ms,
        input_schema=schemas.get("input"),
        output_schema=schemas.get("output"),
    )


def _result(result: wire_execute.Result) -> Result:
    return Result(
        skill=result.skill,
        outputs=tuple(map(_output, result.outputs)),
        is_error=result.is_error,
        usage=result.usage,
    )


def _output(output: wire_execute.Output) -> Output:
    file = None
    if output.file is not None:
        about = output.file.file
        file = File(
            urls=tuple([url.target for url in output.file.sources.urls]),
            name=about.name,
            media_type=about.media_type,
            size=about.size,
            hashes=about.hashes,
        )
    return Output(
        name=output.name,
        type=output.type,
        text=output.text if file is None else "",
        file=file,
        complete=output.last,
        part=output.part,
    )


def _task(task: wire_task.Task, agent: str, lang: str) -> Task:
    state = task.state or "accepted"
    ended = state in ("failed", "rejected", "cancelled")
    return Task(
        agent=agent,
        id=task.id,
        skill=task.skill or "",
        state=state,
        revision=task.revision or 0,
        created=task.created,
        updated=task.updated,
        retain_until=task.retain_until,
        deadline=task.deadline,
        poll_after=task.poll_after,
        request=task.request,
        context=task.context,
        thread=task.thread,
        progress=_progress(task.progress),
        plan=_plan(task.plan),
        outputs=tuple(map(_output, task.outputs)),
        question=None if task.input is None else _question(task.input, task.id, agent, lang),
        confirmation=None if task.confirm is None else _confirmation(task.confirm, agent),
        result=None if task.result is None else _result(task.result),
        error=error_of_failure(task.failure, state) if ended else None,
    )


def _progress(progress: wire_task.Progress | None) -> Progress | None:
    if progress is None:
        return None
    fraction = None if progress.fraction is None else float(progress.fraction)
    return Progress(text=progress.text, fraction=fraction)


def _plan(plan: PlanSteps | None) -> Plan | None:
    if plan is None:
        return None
    steps = [
        PlanStep(
            id=step.id,
            title=step.title,
            kind=step.kind,
            state=step.state,
            task=step.task,
            after=tuple((step.after or "").split()),
            group=step.group,
            otherwise=step.otherwise,
        )
        for step in plan.steps
    ]
    return Plan(
        title=plan.title,
        revision=plan.revision,
        digest=plan.digest,
        steps=tuple(steps),
        paused=plan.paused,
    )


def _question(question: wire_task.Input, task: str, agent: str, lang: str) -> Question:
    return Question(
        agent=agent,
        task=task,
        id=question.id,
        revision=question.revision,
        text=text_in(question.questions, lang),
        schema=_object(question.schema.json),
        expires=question.expires,
    )


def _confirmation(confirm: wire_confirm.Confirm, agent: str, text: str = "") -> Confirmation:
    try:
        params = wire_confirm.parameters_of(confirm.action)
    except ValueError as error:
        raise InvalidAnswerError(f"the parameters of the action are not valid: {error}") from error
    return Confirmation(
        agent=agent,
        id=confirm.id,
        task=confirm.task,
        acting=None if confirm.agent is None else str(confirm.agent.bare),
        principal=None if confirm.principal is None else str(confirm.principal),
        skill=confirm.action.type,
        version=confirm.action.version,
        params=params,
        risk=None if confirm.risk is None else confirm.risk.level,
        text=text,
        hash=confirm.hash,
        genuine=_is_genuine(confirm, agent),
        expires=confirm.expires,
        standing=_offer(confirm, agent),
    )


def _offer(confirm: wire_confirm.Confirm, agent: str) -> StandingOffer | None:
    offer = confirm.standing
    if offer is None:
        return None
    genuine = False
    if offer.hash is not None and offer.hash.algo == "sha-256":
        digest = wire_confirm.standing_digest_of(JID.parse(agent), confirm)
        genuine = digest == offer.hash.digest
    return StandingOffer(
        text=offer.text.text,
        until=offer.until,
        uses=offer.uses,
        free=tuple([one.name for one in offer.free]),
        hash=offer.hash,
        genuine=genuine,
    )


def _is_genuine(confirm: wire_confirm.Confirm, agent: str) -> bool | None:
    """Return whether the digest is that of the action (CNF-020); None if it cannot be checked."""
    if confirm.hash is None or confirm.hash.algo != "sha-256":
        return None
    acting = confirm.agent or JID.parse(agent)
    try:
        same = wire_confirm.has_digest(acting, confirm)
    except ValueError:
        same = False
    # An agent that passes a question on may have to give it another task or id.
    return same or (None if confirm.agent is not None else False)
