"""What people are asked, as any client shows it."""

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.messages.outbound import OutboundMessage, render
from component.skills import skill
from component.skills.params import prepare
from component.task_messages.questions import Questions
from component.task_messages.value_rendering import shown_parameters, visible
from component.tasks.protocol import Question
from component.tasks.questions import confirm_for, input_for
from component.tasks.request import CallerContext, Confirmation, Request
from tests import schemas
from tests.component.link.router.wire import parse
from xep.fluux_agent.confirm import Confirm, digest_of
from xep.jid import JID

AGENT = JID.parse("assistant@agent.example.com")
ALICE = JID.parse("alice@example.com")
BOSS = JID.parse("boss@example.com")
EXPIRES = datetime(2026, 12, 1, 8, 15, tzinfo=UTC)
NOW = EXPIRES - timedelta(hours=2)
WORDS = Questions(clock=lambda: NOW)
"""Without the skills at hand."""


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
    request = Request(
        skill=declared.name,
        principal=ALICE,
        requester=ALICE,
        target=AGENT,
        confirmation=Confirmation((ALICE,), "high"),
    )
    confirm = confirm_for(request, declared, arguments, task="t-1", question="c-1", expires=EXPIRES)
    return question(confirm, asked)


def question(
    content: Any, asked: tuple[JID, ...] = (ALICE,), *, conversational: bool = True
) -> Question:
    return Question(
        id=content.id,
        task="t-1",
        revision=1,
        request=Request(
            skill="report",
            principal=ALICE,
            requester=JID.parse("alice@example.com/phone"),
            target=AGENT,
            origin="message" if conversational else "iq",
        ),
        asked=asked,
        thread="tidy-up",
        content=content,
        put_at=NOW,
    )


def caused_by(asked: Question, **fields: Any) -> Question:
    request = msgspec.structs.replace(asked.request, caller_context=CallerContext("", **fields))
    return msgspec.structs.replace(asked, request=request)


def asks(schema: dict[str, Any], text: str = "Which river?", **more: Any) -> Question:
    raw = msgspec.Raw(json.dumps({"type": "object", **schema}).encode())
    return question(input_for(text, raw, id="q-1", revision=2, expires=EXPIRES), **more)


def body(message: OutboundMessage) -> str:
    (part,) = message.parts
    return part.text


def encoded(message: OutboundMessage) -> str:
    (stanza,) = render(message, 262_144)
    return stanza.encode()


def test_it_says_what_a_model_chose_after_reading_strangers() -> None:
    told = caused_by(confirmation(folder="Archive"), chosen=("folder", "to\n\u202e"))
    first = "After reading text that others wrote, I chose folder, to"
    (message,) = WORDS.messages(told)
    assert body(message).startswith(first)
    assert "\u202e" not in body(message)
    assert "\n" not in body(message).partition(". May I run")[0]


def test_it_says_that_an_operator_and_not_the_person_wants_it() -> None:
    told = caused_by(confirmation(folder="Archive"), operator="boss@example.com")
    (message,) = WORDS.messages(told)
    first = "This is not your own request, but one of my operator boss@example.com. May I run"
    assert body(message).startswith(first)


def test_a_confirmation_names_everything_a_person_has_to_know() -> None:
    (message,) = WORDS.messages(confirmation(folder="Archive", more={"a": [1]}))
    assert body(message) == (
        'May I run mail.erase? folder: "Archive", days: 30, more: {"a": [1]}.'
        " Please answer yes or no within 2 hours."
    )
    xml = encoded(message)
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
    messages = WORDS.messages(confirmation(folder="a", asked=(BOSS, ALICE)))
    assert [message.to.to for message in messages] == [str(BOSS), str(ALICE)]
    first = "For alice@example.com: May I run mail.erase?"
    assert all(body(message).startswith(first) for message in messages)
    assert len({message.id for message in messages}) == 1


def test_long_values_stand_whole_below_the_question() -> None:
    text = "the first line\nthe second " + "x" * 1000
    (message,) = WORDS.messages(confirmation(folder=text, more={"k": ["y" * 1000]}))
    first, empty, *lines = body(message).split("\n")
    assert first == (
        "May I run mail.erase? Its 3 parameters are below. Please answer yes or no within 2 hours."
    )
    assert empty == ""
    assert lines == [
        f"folder: {json.dumps(text)}",
        "days: 30",
        'more: {"k": ["' + "y" * 1000 + '"]}',
    ]


def test_what_is_not_shown_is_said_before_the_value() -> None:
    text = "a" * 500 + "b" * 9_500
    (message,) = WORDS.messages(confirmation(folder=text, more={"a": 1}))
    said = body(message)
    assert "3 parameters are below. Please answer yes or no within 2 hours. Not everything" in said
    digest = hashlib.sha256(text.encode()).hexdigest()
    cut = f"first 500 of 10,000 characters shown; SHA-256 {digest}"
    assert f'\nfolder ({cut}): "{"a" * 500}"\n' in said
    assert "b" * 10 not in said
    assert said.endswith('days: 30\nmore: {"a": 1}')
    assert len(said) < 1500
    (confirm,) = [each for each in message.payloads if isinstance(each, Confirm)]
    assert confirm.action.params[0].text == text  # programs have the whole


def test_all_of_many_parameters_are_shown() -> None:
    (message,) = WORDS.messages(confirmation(many))
    assert all(f"{name}: 0" in body(message) for name in "abcdefghijkmnopqrstuvw")


@given(
    st.dictionaries(
        st.text(max_size=20), st.one_of(st.text(max_size=3000), st.integers()), max_size=5
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3000),
)
def test_each_parameter_is_whole_or_said_not_to_be(more: dict[str, Any], folder: str) -> None:
    values = {"folder": folder, "days": 30, "more": more}
    given_ = shown_parameters(values)
    assert len(given_.lines) == 3
    for line, (name, value) in zip(given_.lines, values.items(), strict=True):
        assert line.isprintable()
        if line.startswith(f"{name}: "):
            read, _ = json.JSONDecoder().raw_decode(line.removeprefix(f"{name}: "))
            assert read == value
        else:
            assert given_.cut
            assert re.match(rf"{name} \(first 500 of [\d,]+ characters shown; SHA-256 ", line)


HIDDEN = (
    "\u202e\u2066\u200b\u200d\u2060\ufeff\u00ad\u034f\u3164\u115f\ufe0f\u2800\u00a0\u2028\x7f\x1b"
    "\U000e0041\U000e0101\ue000"
)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_cannot_be_seen_is_shown_escaped(hidden: str) -> None:
    (message,) = WORDS.messages(confirmation(folder=f"in{hidden}box"))
    assert hidden not in body(message)
    escaped = json.dumps(hidden)[1:-1]
    assert f'folder: "in{escaped}box"' in body(message)
    assert hidden not in WORDS.title_of(confirmation(folder=f"in{hidden}box"))


def test_marks_that_cover_what_stands_beside_them_are_escaped() -> None:
    assert visible("Z\u0335\u0335\u0335\u0335") == "Z\u0335\u0335\u0335\u0335"
    assert visible("Z" + "\u0335" * 6).endswith("\\u0335\\u0335")


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("p\u0430ypal.example", '"\u0430" is CYRILLIC SMALL LETTER A'),
        ("\u0391dmin", '"\u0391" is GREEK CAPITAL LETTER ALPHA'),
        ("\uff41dmin", '"\uff41" is FULLWIDTH LATIN SMALL LETTER A'),
        (["x", {"k": "\U0001d41adm\u0456n"}], "MATHEMATICAL BOLD SMALL A"),
    ],
)
def test_letters_that_look_like_others_are_named(value: Any, note: str) -> None:
    (line,) = shown_parameters({"to": value}).lines
    assert "(careful, look-alike letters: " in line
    assert note in line


@pytest.mark.parametrize(
    "value",
    [
        "paypal",
        "\u041f\u0440\u0438\u0432\u0435\u0442, world",
        "Ω is a letter",
        "1ª",
        "naïve",
        "日本 café",
        5,
        None,
    ],
)
def test_other_languages_are_no_look_alikes(value: Any) -> None:
    (line,) = shown_parameters({"to": value}).lines
    assert "careful" not in line


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_no_value_can_pose_as_the_question(value: str) -> None:
    (message,) = WORDS.messages(confirmation(folder=value))
    said = body(message)
    assert all(line.isprintable() for line in said.split("\n"))
    encoded(message)
    quoted = said.partition("folder: ")[2]
    read, end = json.JSONDecoder().raw_decode(quoted)
    assert read == value
    rest = quoted[end:]
    assert re.fullmatch(
        r"( \(careful, [^\n]*\))?(, days: 30, more: null\. Please answer yes or no within 2 hours."
        r"|\ndays: 30\nmore: null)",
        rest,
    )
    assert WORDS.title_of(confirmation(folder=value)).isprintable()


def test_a_title_says_for_whom() -> None:
    assert WORDS.title_of(confirmation(folder="a", asked=(BOSS,))).startswith(
        'for alice@example.com: mail.erase: folder: "a"'
    )
    long = WORDS.title_of(confirmation(folder="x" * 1000))
    assert long.endswith("… (the question itself shows more)")
    assert len(long) < 300


def test_an_input_says_how_it_is_answered() -> None:
    river = {"properties": {"river": {"type": "string"}}, "required": ["river"]}
    (message,) = WORDS.messages(asks(river))
    assert body(message) == (
        "Which river?\n\nPlease answer here within 2 hours. To decline, say cancel."
    )
    assert schemas.check(encoded(message)) == 1
    assert message.to.to == str(ALICE)
    choice = {"properties": {"size": {"enum": ["s", "m"]}}}
    (message,) = WORDS.messages(asks(choice))
    assert "Please answer with s or m within" in body(message)
    assert [getattr(each, "value", None) for each in message.payloads[1:]] == ["s", "m"]
    flag = {"properties": {"flag": {"type": "boolean"}}}
    (message,) = WORDS.messages(asks(flag))
    assert "Please answer with yes or no within" in body(message)
    more = {"properties": choice["properties"] | {"days": {"type": "integer"}}}
    (message,) = WORDS.messages(asks({**more, "required": ["size"]}))
    assert "Please answer with s or m within" in body(message)
    assert body(message).endswith(" hours. You may add days after it. To decline, say cancel.")
    (message,) = WORDS.messages(asks(more))
    assert "answer with the form, or with /answer and then size, days within" in body(message)
    lines = {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    (message,) = WORDS.messages(asks(lines, text="x" * 5000))
    assert "Please answer with the form within" in body(message)
    assert body(message).startswith("(first 2,000 of 5,000 characters shown)\n\nxxx")
    (message,) = WORDS.messages(asks(lines, text="Two\nlines, one \u202eturned"))
    assert body(message).startswith("Two\nlines, one \\u202eturned\n\n")
    many_choices = {"properties": {"size": {"enum": [str(n) for n in range(50)]}}}
    (message,) = WORDS.messages(asks(many_choices))
    assert len(message.payloads) == 1


def test_an_input_that_no_conversation_led_to_is_told_by_its_event_alone() -> None:
    river = {"properties": {"river": {"type": "string"}}}
    assert WORDS.messages(asks(river, conversational=False)) == ()


@skill(name="mail.erase", title="Erase mail", version="1.2.0")
def titled(
    folder: Annotated[str, msgspec.Meta(title="Folder", description="Where.")],
    days: Annotated[int, msgspec.Meta(title="Older than (days)")] = 30,
) -> None:
    """Erases old messages for good, attachments included"""


def knowing(declared: Any = titled, zone: timezone | None = None) -> Questions:
    return Questions(lambda _: declared, lambda _: zone, lambda: NOW)


def test_a_confirmation_has_the_titles_and_the_parameters_that_are_not_defaults() -> None:
    asked = confirmation(titled, folder="Archive")
    (message,) = knowing().messages(asked)
    assert body(message) == (
        'May I run "Erase mail"? Folder: *Archive*. Please answer yes or no within 2 hours.'
    )
    assert knowing().title_of(asked) == '"Erase mail": Folder: *Archive*'
    (message,) = knowing().messages(confirmation(titled, folder="Archive", days=31))
    assert "Folder: *Archive*, Older than (days): 31." in body(message)


def test_everything_is_shown_on_request() -> None:
    assert knowing().whole(confirmation(titled, folder="Archive"), ALICE) == (
        '"Erase mail". Erases old messages for good, attachments included\n'
        "Skill: mail.erase 1.2.0\n"
        "For: alice@example.com\n"
        'folder: "Archive"\n'
        "days: 30\n"
        "\n"
        "Please answer yes or no within 2 hours."
    )


def test_the_texts_of_another_version_say_nothing_of_this_one() -> None:
    @skill(name="mail.erase", title="Harmless", version="2.0.0")
    def other(folder: str) -> None:
        """Do nothing."""

    (message,) = knowing(other).messages(confirmation(folder="Archive"))
    assert body(message).startswith('May I run mail.erase? folder: "Archive"')


def test_equal_titles_are_replaced_by_names() -> None:
    @skill(name="copy", version="1.0.0")
    def copies(
        a: Annotated[str, msgspec.Meta(title="Folder")],
        b: Annotated[str, msgspec.Meta(title="folder")],
    ) -> None:
        """Copy."""

    (message,) = knowing(copies).messages(confirmation(copies, a="x", b="y"))
    assert "a: *x*, b: *y*" in body(message)


@pytest.mark.parametrize(
    ("minutes", "zone", "said"),
    [
        (120, None, "within 2 hours"),
        (120, timezone(timedelta(hours=1)), "before 09:15 (UTC+01:00)"),
        (24 * 60, timezone(timedelta(hours=-5)), "before 2026-12-01 03:15 (UTC-05:00)"),
        (24 * 60 - 0.001, None, "within 24 hours"),
        (72 * 60, None, "within 3 days"),
        (0.5, None, "within 30 seconds"),
        (90, None, "within 90 minutes"),
        (-1, None, "within 0 seconds"),
    ],
)
def test_a_question_says_when_it_lapses(minutes: float, zone: timezone | None, said: str) -> None:
    asked = confirmation(titled, folder="a")
    now = EXPIRES - timedelta(minutes=minutes)
    if zone is not None:
        now = NOW if minutes == 120 else now
        expires = now + timedelta(minutes=minutes)
        confirm = msgspec.structs.replace(asked.content, expires=expires)
        asked = msgspec.structs.replace(asked, content=confirm)
    words = Questions(zone=lambda _: zone, clock=lambda: now)
    (message,) = words.messages(asked)
    assert body(message).endswith(f"Please answer yes or no {said}.")
