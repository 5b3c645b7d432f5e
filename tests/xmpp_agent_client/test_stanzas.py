"""What callers send, and what they make of answers and messages, whatever these are."""

import contextlib
import string
from datetime import UTC, datetime
from typing import Any, get_args
from xml.etree.ElementTree import Element, SubElement, fromstring

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import schemas
from tests.profiles import examples
from tests.xep.fluux_agent.fitting import FITTING, identifiers, skill_names, texts
from tests.xep.strategies import elements, payloads, xml_text
from xep.binding import Payload, decode, encode
from xep.disco import InfoQuery, ItemsQuery
from xep.fluux_agent import confirm as wire_confirm
from xep.fluux_agent import errors as wire_errors
from xep.fluux_agent import execute as wire_execute
from xep.fluux_agent import skills as wire_skills
from xep.fluux_agent import task as wire_task
from xep.hashes import Hash
from xep.jid import JID
from xep.result_sets import First, ResultSet
from xep.stanza_error import StanzaError
from xmpp_agent_client import stanzas
from xmpp_agent_client.errors import (
    AgentError,
    CallError,
    InvalidAnswerError,
    OverQuotaError,
    TaskCancelledError,
    TooBigError,
    error_of,
    error_of_failure,
)
from xmpp_agent_client.model import Confirmation, Question, Result, Skill, Task
from xmpp_agent_client.stanzas import Page, Request

AGENT = "agent.example.com"
budget = examples(30, 2000)
names = st.text(string.ascii_letters, min_size=1, max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


def read(request: Request, cls: type[Payload]) -> Any:
    """Return a request as an agent reads it; it fits its schema."""
    schemas.check(request.xml)
    return decode(cls, fromstring(request.xml), strict=True)


@budget
@given(
    skill=skill_names,
    params=st.dictionaries(names.map(str.lower), values),
    given_texts=st.dictionaries(names.map(str.upper), xml_text),
    request=identifiers,
)
def test_an_agent_gets_the_parameters_that_were_passed(
    skill: str, params: dict[str, Any], given_texts: dict[str, str], request: str
) -> None:
    made = stanzas.execute_request(skill, params, texts=given_texts, request=request)
    execute = read(made, wire_execute.Execute)
    assert (execute.skill, execute.request) == (skill, request)
    assert execute.values() == params
    assert execute.texts() == {name: [text] for name, text in given_texts.items()}
    assert made.xml == made.xml, "a repetition has the same content"


@pytest.mark.parametrize(
    ("params", "given_texts"),
    [
        ({"a": float("nan")}, {}),
        ({"a": "\ud800"}, {}),
        ({"a": object()}, {}),
        ({}, {"a": "\x00"}),
        ({"a": 1}, {"a": "1"}),
    ],
    ids=["NaN", "half a surrogate pair", "no JSON", "no XML", "given twice"],
)
def test_parameters_that_cannot_be_sent_are_refused(
    params: dict[str, Any], given_texts: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="a"):
        stanzas.execute_request("echo", params, texts=given_texts, request="r")


def test_every_request_fits_its_schema() -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    question = Question(agent=AGENT, task="t", id="q", revision=3, text="?", schema={})
    digest = Hash(algo="sha-256", digest=b"d")
    asked = Confirmation(agent=AGENT, id="c", skill="erase", hash=digest)
    execute = stanzas.execute_request(
        "echo", request="r", mode="async", deadline=now, priority="low", context="c", earlier=("t",)
    )
    assert read(execute, wire_execute.Execute).deadline == now
    query = stanzas.skills_request(search="time zone", schemas=True, after="k")
    assert read(query, wire_skills.SkillsQuery).page == ResultSet(after="k")
    tasks = stanzas.tasks_request(state="running", context="c", since=now)
    assert read(tasks, wire_task.Tasks).since == now
    assert read(stanzas.task_request("t"), wire_task.Task).id == "t"
    assert read(stanzas.events_request("t", 4), wire_task.Events).since == 4
    assert read(stanzas.cancel_request("t", "why"), wire_task.Cancel).reason == "why"
    answer = read(stanzas.answer_request(question, {"a": [1]}), wire_task.InputAnswer)
    assert (answer.task, answer.input, answer.revision) == ("t", "q", 3)
    assert bytes(answer.params.json) == b'{"a":[1]}'
    declined = read(stanzas.answer_request(question, None), wire_task.InputAnswer)
    assert declined.form.type == "cancel"
    decision = read(stanzas.decision_request(asked, approve=True), wire_confirm.Decision)
    assert (decision.id, decision.value, decision.hash) == ("c", "approve", digest)
    denial = stanzas.decision_request(asked, approve=False, reason="no")
    assert read(denial, wire_confirm.Decision).value == "deny"


@budget
@given(task=payloads(wire_task.Task, 3, FITTING), agent=st.just(AGENT))
def test_a_task_says_the_same_in_the_model(task: wire_task.Task, agent: str) -> None:
    task = without_odd_json(task)
    read = stanzas.read_task(fromstring(encode(task)), agent)
    assert (read.id, read.skill, read.revision) == (task.id, task.skill or "", task.revision or 0)
    assert read.updated == task.updated
    assert (read.result is None) == (task.result is None)
    assert (read.question is None) == (task.input is None)
    assert (read.confirmation is None) == (task.confirm is None)
    assert [one.text for one in read.outputs if one.file is None] == [
        one.text for one in task.outputs if one.file is None
    ]
    assert (read.error is not None) == (task.state in ("failed", "rejected", "cancelled"))
    assert (read.plan is None) == (task.plan is None)
    if read.plan is not None and task.plan is not None:
        assert (read.plan.revision, read.plan.paused) == (task.plan.revision, task.plan.paused)
        assert [(one.id, one.state, one.task, " ".join(one.after)) for one in read.plan.steps] == [
            (one.id, one.state, one.task, one.after or "") for one in task.plan.steps
        ]


def without_odd_json(task: wire_task.Task) -> wire_task.Task:
    """Return a task with objects where the schema of XML allows any JSON."""
    replace, empty = msgspec.structs.replace, msgspec.Raw(b"{}")
    if task.input is not None:
        schema = replace(task.input.schema, json=empty)
        task = replace(task, input=replace(task.input, schema=schema))
    if task.confirm is not None and task.confirm.action.json_params is not None:
        params = replace(task.confirm.action.json_params, json=empty)
        action = replace(task.confirm.action, json_params=params)
        task = replace(task, confirm=replace(task.confirm, action=action))
    return task


READERS = {
    InfoQuery: lambda element: stanzas.read_info(element, AGENT),
    ItemsQuery: stanzas.read_items,
    wire_skills.SkillsQuery: stanzas.read_skills,
    wire_execute.Result: lambda element: stanzas.read_executed(element, AGENT),
    wire_execute.Accepted: lambda element: stanzas.read_executed(element, AGENT),
    wire_task.Task: lambda element: stanzas.read_task(element, AGENT),
    wire_task.Tasks: lambda element: stanzas.read_tasks(element, AGENT),
    wire_task.Events: lambda element: stanzas.read_events(element, AGENT),
}


@pytest.mark.parametrize("cls", READERS, ids=lambda cls: cls.__name__)
@budget
@given(data=st.data())
def test_any_answer_is_read_or_is_an_invalid_answer(
    cls: type[Payload], data: st.DataObject
) -> None:
    with contextlib.suppress(InvalidAnswerError):
        READERS[cls](data.draw(elements(cls)))


@pytest.mark.parametrize("reader", READERS.values(), ids=lambda cls: "")
def test_a_missing_answer_and_another_one_are_invalid(reader: Any) -> None:
    for element in (None, Element("{urn:other}x")):
        with pytest.raises(InvalidAnswerError):
            reader(element)


@budget
@given(
    children=st.lists(elements(wire_task.Task) | elements(wire_confirm.Confirm), max_size=3),
    sender=st.sampled_from(["agent.example.com", "a@b/c", "", "@", "a b"]) | xml_text,
)
def test_any_message_is_read(children: list[Element], sender: str) -> None:
    message = Element("{jabber:client}message", {"from": sender})
    message.extend(children)
    for news in stanzas.read_message(message):
        assert isinstance(news, Task | Confirmation)
        assert news.agent == stanzas.bare(sender)


def test_a_bounced_message_is_no_event() -> None:
    message = Element("{jabber:client}message", {"from": AGENT, "type": "error"})
    SubElement(message, wire_task.Task.xml_tag, id="t", state="running", revision="1")
    assert stanzas.read_message(message) == []
    del message.attrib["type"]
    assert len(stanzas.read_message(message)) == 1


WIDE_A = "\uff21"  # the fullwidth letter, which RFC 7622 maps to "a"


def test_an_address_that_servers_may_take_for_another_one_is_no_sender() -> None:
    message = Element("{jabber:client}message", {"from": f"{WIDE_A}gent@example.com"})
    SubElement(message, wire_task.Task.xml_tag, id="t", state="running", revision="1")
    assert stanzas.bare(f"{WIDE_A}gent@example.com") == "agent@example.com"
    assert stanzas.read_message(message) == []


def confirm_message(**changes: Any) -> Element:
    """The question of an agent about an action, with its digest."""
    given: dict[str, Any] = {"id": "c-1", "task": "t-1", "principal": JID.parse("a@example.com")}
    action = wire_confirm.Action(
        type="erase",
        version="1",
        params=(wire_confirm.ActionParam(name="folder", text="Archive"),),
        json_params=wire_confirm.ActionParams(json=msgspec.Raw(b'{"days":30}')),
    )
    asked = wire_confirm.Confirm(**given, action=action)
    digest = wire_confirm.digest_of(JID.parse(AGENT), asked)
    asked = msgspec.structs.replace(asked, hash=Hash(algo="sha-256", digest=digest))
    xml = encode(msgspec.structs.replace(asked, **changes))
    return fromstring(
        f"<message xmlns='jabber:client' from='{AGENT}/x'><body>May I?</body>{xml}</message>"
    )


def test_a_confirmation_shows_the_action_and_that_its_digest_is_right() -> None:
    (asked,) = stanzas.read_message(confirm_message())
    assert isinstance(asked, Confirmation)
    assert asked.params == {"folder": "Archive", "days": 30}
    assert (asked.skill, asked.text, asked.agent) == ("erase", "May I?", AGENT)
    assert asked.genuine is True


def test_the_offer_of_a_standing_approval_is_shown_and_accepted_with_its_digest() -> None:
    offer = wire_confirm.Standing(
        until=datetime(2026, 12, 31, 8, tzinfo=UTC),
        uses=50,
        text=wire_confirm.StandingText(text="I may erase anything.", lang="en"),
        free=(wire_confirm.FreeText(name="folder"),),
    )
    (asked,) = stanzas.read_message(confirm_message(standing=offer))
    assert isinstance(asked, Confirmation)
    assert asked.standing is not None
    assert not asked.standing.genuine, "it has no digest"
    (plain,) = stanzas.read_message(confirm_message())
    assert isinstance(plain, Confirmation)
    for one, approve in ((plain, True), (asked, False)):
        with pytest.raises(ValueError, match="offers"):
            stanzas.decision_request(one, approve=approve, standing=True)
    shown = wire_confirm.Confirm(
        id=asked.id,
        principal=JID.parse(asked.principal or ""),
        action=wire_confirm.Action(
            type="erase",
            version="1",
            json_params=wire_confirm.ActionParams(json=msgspec.Raw(b'{"days":30}')),
        ),
        standing=offer,
    )
    digest = Hash(algo="sha-256", digest=wire_confirm.standing_digest_of(JID.parse(AGENT), shown))
    signed = msgspec.structs.replace(offer, hash=digest)
    (asked,) = stanzas.read_message(confirm_message(standing=signed))
    assert isinstance(asked, Confirmation)
    assert asked.genuine is True
    assert asked.standing is not None
    assert asked.standing.genuine, "the free parameter does not count"
    assert (asked.standing.text, asked.standing.free) == ("I may erase anything.", ("folder",))
    request = stanzas.decision_request(asked, approve=True, standing=True)
    decision = read(request, wire_confirm.Decision)
    assert (decision.standing, decision.hash) == (True, digest)


@pytest.mark.parametrize(
    ("changes", "genuine"),
    [
        ({"task": "t-2"}, False),
        ({"action": wire_confirm.Action(type="erase", version="1")}, False),
        ({"hash": None}, None),
        ({"hash": Hash(algo="sha3-256", digest=b"d")}, None),
        ({"agent": JID.parse(AGENT)}, True),
        ({"agent": JID.parse("other.example.com")}, None),
    ],
    ids=["another task", "other parameters", "none", "unknown", "passed on", "passed on, changed"],
)
def test_a_digest_of_another_action_is_noticed(
    changes: dict[str, Any], genuine: bool | None
) -> None:
    (asked,) = stanzas.read_message(confirm_message(**changes))
    assert isinstance(asked, Confirmation)
    assert asked.genuine is genuine


CONDITIONS = wire_errors.CONDITIONS


@pytest.mark.parametrize("cls", CONDITIONS, ids=lambda cls: cls.xml.local)
def test_every_condition_has_an_exception(cls: type[Payload]) -> None:
    required = {
        "InvalidParam": {"name": "a"},
        "Retry": {"after": 7},
        "InvalidGrant": {"reason": "expired"},
    }.get(cls.__name__, {})
    error = error_of(StanzaError("not-allowed", "Why.", application=(cls(**required),)))
    assert error.condition == cls.xml.local
    assert error.stanza_condition == "not-allowed"
    assert str(error) == f"{cls.xml.local}: Why."
    assert type(error) is not AgentError
    assert isinstance(error, CallError)


def test_errors_have_the_details_of_all_conditions() -> None:
    assert error_of(wire_errors.denied("approval")).helps == "approval"
    assert error_of(wire_errors.internal()).helps is None
    error = error_of(wire_errors.over_quota(7))
    assert error.helps == "later"
    assert isinstance(error, OverQuotaError)
    assert (error.after, error.repeatable) == (7, True)
    error = error_of(wire_errors.too_big(9))
    assert isinstance(error, TooBigError)
    assert (error.limit, error.repeatable) == (9, False)
    plain = error_of(StanzaError("remote-server-timeout"))
    assert (type(plain), plain.condition, str(plain)) == (AgentError, "", "remote-server-timeout")
    assert plain.repeatable


def test_failures_are_exceptions_as_well() -> None:
    failure = wire_task.Failure.of(wire_errors.denied(), repeatable=True)
    error = error_of_failure(failure, "failed")
    assert (error.condition, error.repeatable) == ("denied", True)
    assert isinstance(error_of_failure(None, "cancelled"), TaskCancelledError)
    assert "rejected" in str(error_of_failure(None, "rejected"))


@pytest.mark.parametrize(
    ("page", "after"),
    [
        (None, None),
        (ResultSet(count=0), None),
        (ResultSet(last="b", first=First(key="a", index=0), count=2), None),
        (ResultSet(last="b", first=First(key="a", index=0), count=3), "b"),
        (ResultSet(last="b", first=First(key="a")), "b"),
    ],
    ids=["no pages", "nothing", "all", "more", "not counted"],
)
def test_a_list_continues_where_its_page_says(page: ResultSet | None, after: str | None) -> None:
    skills = tuple([wire_skills.SkillDescription(name=name) for name in "ab"])
    if page == ResultSet(count=0):
        skills = ()
    answer = wire_skills.SkillsQuery(skills=skills, page=page)
    found, following = stanzas.read_skills(fromstring(encode(answer)))
    assert [skill.name for skill in found] == [skill.name for skill in skills]
    assert following == Page(after)


def test_texts_are_in_the_preferred_language() -> None:
    titles = tuple(
        [wire_skills.Title(text=text, lang=lang) for text, lang in (("Bericht", "de"), ("R", None))]
    )
    answer = wire_skills.SkillsQuery(
        skills=(wire_skills.SkillDescription(name="report", titles=titles),)
    )

    def title(lang: str) -> str:
        ((skill,), _) = stanzas.read_skills(fromstring(encode(answer)), lang)
        assert isinstance(skill, Skill)
        return skill.title

    assert (title("de"), title("fr")) == ("Bericht", "R")


@budget
@given(output=texts)
def test_a_result_has_the_texts_of_its_outputs(output: str) -> None:
    result = wire_execute.Result(
        skill="echo",
        outputs=(
            wire_execute.Output(name="a", text=output),
            wire_execute.Output(name="b", type="application/json", text='{"n":1}'),
        ),
    )
    read = stanzas.read_executed(fromstring(encode(result)), AGENT)
    assert isinstance(read, Result)
    assert read.text == f'{output}\n{{"n":1}}'
    assert read.outputs[1].json() == {"n": 1}


def test_all_conditions_of_the_protocol_are_covered() -> None:
    assert {cls.xml.local for cls in get_args(wire_errors.Condition)} <= {
        cls.condition for cls in AgentError.__subclasses__()
    }
