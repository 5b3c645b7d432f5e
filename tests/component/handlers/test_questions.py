"""What people are asked, as any client shows it."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.handlers.questions import question_messages, spoken_time, title_of
from component.skills import skill
from component.skills.params import prepare
from component.tasks.answers import input_for
from component.tasks.confirmation import confirm_for, digest_of
from component.tasks.protocol import Question
from tests import schemas
from tests.component.router.wire import parse
from xep.fluux_agent.confirm import Confirm
from xep.jid import JID
from xep.stanza import Message

AGENT = JID.parse("assistant@agent.example.com")
ALICE = JID.parse("alice@example.com")
BOSS = JID.parse("boss@example.com")
EXPIRES = datetime(2026, 12, 1, 8, 15, tzinfo=UTC)


@skill(name="mail.erase", version="1.2.0")
def erase(folder: str, days: int = 30, more: dict[str, Any] | None = None) -> None:
    """Erase mail."""


@skill(name="many")
def many(
    a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0, f: int = 0, g: int = 0, h: int = 0,
    i: int = 0, j: int = 0, k: int = 0, m: int = 0, n: int = 0, o: int = 0, p: int = 0, q: int = 0,
    r: int = 0, s: int = 0, t: int = 0, u: int = 0, v: int = 0, w: int = 0,
) -> None:  # fmt: skip
    """Take many."""


def confirmation(
    declared: Any = erase, asked: tuple[JID, ...] = (ALICE,), **values: Any
) -> Question:
    arguments = prepare(declared, json=json.dumps(values))
    confirm = confirm_for(
        AGENT, "t-1", ALICE, declared, arguments, id="c-1", expires=EXPIRES, risk="high"
    )
    return question(confirm, asked)


def question(
    content: Any, asked: tuple[JID, ...] = (ALICE,), *, conversational: bool = True
) -> Question:
    return Question(
        id=content.id,
        task="t-1",
        revision=1,
        agent=AGENT,
        principal=ALICE,
        requester=JID.parse("alice@example.com/phone"),
        asked=asked,
        thread="tidy-up",
        content=content,
        conversational=conversational,
    )


def asks(schema: dict[str, Any], text: str = "Which river?", **more: Any) -> Question:
    raw = msgspec.Raw(json.dumps({"type": "object", **schema}).encode())
    return question(input_for(text, raw, id="q-1", revision=2, expires=EXPIRES), **more)


def body(message: Message) -> str:
    assert message.body is not None
    return message.body


def test_a_confirmation_names_everything_a_person_has_to_know() -> None:
    (message,) = question_messages(confirmation(folder="Archive", more={"a": [1]}))
    assert body(message) == (
        'May I run mail.erase? folder: "Archive", days: 30, more: {"a": [1]}.'
        " Please answer yes or no before 2026-12-01 08:15 UTC."
    )
    xml = message.encode()
    assert schemas.check(xml) == 1
    sent = parse(xml)
    assert (sent.get("type"), sent.get("to"), sent.get("from")) == (
        "chat",
        "alice@example.com",
        "assistant@agent.example.com",
    )
    assert sent.findtext("{jabber:client}thread") == "tidy-up"
    assert sent.get("{http://www.w3.org/XML/1998/namespace}lang") == "en"
    quick = "{urn:xmpp:tmp:quick-response}"
    assert [each.get("value") for each in sent.findall(f"{quick}response")] == ["yes", "no"]
    assert [each.get("id") for each in sent.findall(f"{quick}action")] == [
        "approve:c-1",
        "deny:c-1",
    ]
    (confirm,) = [each for each in message.payloads if isinstance(each, Confirm)]
    assert confirm.hash is not None
    assert confirm.hash.digest == digest_of(AGENT, confirm)


def test_each_approver_is_asked_and_told_for_whom() -> None:
    messages = question_messages(confirmation(folder="a", asked=(BOSS, ALICE)))
    assert [message.to for message in messages] == [BOSS, ALICE]
    assert all("mail.erase for alice@example.com?" in body(message) for message in messages)
    assert len({message.id for message in messages}) == 1


def test_long_values_are_cut_where_one_sees_it() -> None:
    (message,) = question_messages(
        confirmation(folder="x" * 1000, more={"k": ["y" * 1000]}, days=1)
    )
    assert '"… (1000 characters), days: 1' in body(message)
    assert "… (1011 characters)" in body(message)
    assert len(body(message)) < 700
    (message,) = question_messages(confirmation(many))
    assert "and 2 more parameters" in body(message)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_no_value_can_pose_as_the_question(value: str) -> None:
    (message,) = question_messages(confirmation(folder=value))
    said = body(message)
    assert "\n" not in said
    assert said.isprintable()
    message.encode()
    quoted = said.removeprefix("May I run mail.erase? folder: ")
    read, end = json.JSONDecoder().raw_decode(quoted)
    assert isinstance(read, str)
    if len(value) <= 200 and all(one.isprintable() or one in "\n\r\t" for one in value):
        assert read == value
    assert ", days: 30, more: null. Please answer yes or no before 2026" in quoted[end:]
    assert title_of(confirmation(folder=value)).isprintable()


def test_an_input_says_how_it_is_answered() -> None:
    river = {"properties": {"river": {"type": "string"}}, "required": ["river"]}
    (message,) = question_messages(asks(river))
    assert body(message) == "Which river?\n\nPlease answer here before 2026-12-01 08:15 UTC."
    assert schemas.check(message.encode()) == 1
    assert message.to == ALICE
    choice = {"properties": {"size": {"enum": ["s", "m"]}}}
    (message,) = question_messages(asks(choice))
    assert "Please answer with s or m before" in body(message)
    assert [getattr(each, "value", None) for each in message.payloads[1:]] == ["s", "m"]
    flag = {"properties": {"flag": {"type": "boolean"}}}
    (message,) = question_messages(asks(flag))
    assert "Please answer with yes or no before" in body(message)
    more = {"properties": choice["properties"] | {"days": {"type": "integer"}}}
    (message,) = question_messages(asks({**more, "required": ["size"]}))
    assert "Please answer with s or m before" in body(message)
    assert body(message).endswith(" UTC. You may add days after it.")
    (message,) = question_messages(asks(more))
    assert "answer with the form, or with /answer and then size, days before" in body(message)
    lines = {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    (message,) = question_messages(asks(lines, text="x" * 5000))
    assert "Please answer with the form before" in body(message)
    assert "… (5000 characters)" in body(message)
    many_choices = {"properties": {"size": {"enum": [str(n) for n in range(50)]}}}
    (message,) = question_messages(asks(many_choices))
    assert len(message.payloads) == 1


def test_an_input_that_no_conversation_led_to_is_told_by_its_event_alone() -> None:
    river = {"properties": {"river": {"type": "string"}}}
    assert question_messages(asks(river, conversational=False)) == ()


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("2026-12-01T08:15:00Z", "2026-12-01 08:15 UTC"),
        ("2026-12-01T10:15:07+02:00", "2026-12-01 08:15:07 UTC"),
    ],
)
def test_times_are_spoken_in_utc(time: str, text: str) -> None:
    assert spoken_time(datetime.fromisoformat(time)) == text
