"""What is confirmed: every parameter as it would run, and a digest that covers exactly that."""

import base64
import hashlib
import json
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from component.skills import Skill, skill
from component.skills.params import prepare
from component.tasks.questions import (
    MOST_BYTES,
    MOST_LINES,
    action_of,
    confirm_for,
    covers,
    lapses,
)
from component.tasks.request import Confirmation, Request
from xep.binding import encode, read
from xep.fluux_agent.confirm import (
    Action,
    ActionParam,
    ActionParams,
    Confirm,
    digest_of,
    has_digest,
    parameters_of,
)
from xep.fluux_agent.errors import InvalidParam, TooBig
from xep.hashes import Hash
from xep.jid import JID
from xep.stanza_error import StanzaError

AGENT = JID.parse("assistant@agent.example.com")
ALICE = JID.parse("alice@example.com/phone")
EXPIRES = datetime(2026, 12, 1, 8, 15, tzinfo=UTC)
EXAMPLE = (
    '{"agent":"assistant@agent.example.com","confirmation":"c-5f0b7a",'
    '"expires":"2026-12-01T08:15:00Z","params":{"days":30,"folder":"Archive"},'
    '"principal":"alice@example.com","skill":"mail.erase","task":"t-9f4c2e81d07b4b6fa3c5",'
    '"version":"1.2.0"}'
)


class Colour(Enum):
    RED = "red"
    ODD = "\x00odd"


@skill(name="mail.erase", version="1.2.0")
def erase(folder: str, days: int = 30) -> None:
    """Erase mail."""


@skill(name="anything", version="2")
def anything(
    text: str,
    number: float = 0.5,
    flag: bool = False,
    words: list[str] = [],  # noqa: B006 - a default as authors write it
    names: frozenset[str] = frozenset(),
    table: dict[str, Any] | None = None,
    colour: Colour = Colour.RED,
) -> None:
    """Do anything."""


def asked(
    declared: Skill, values: dict[str, Any], *, id_: str = "c-5f0b7a", agent: JID = AGENT
) -> Confirm:
    arguments = prepare(declared, json=json.dumps(values))
    needed = Confirmation((ALICE,), risk="high")
    return confirm_for(
        msgspec.structs.replace(request_of(agent=agent), confirmation=needed),
        *(declared, arguments),
        task="t-9f4c2e81d07b4b6fa3c5",
        question=id_,
        expires=EXPIRES,
    )


def request_of(principal: JID = ALICE, agent: JID = AGENT) -> Request:
    return Request(skill="anything", principal=principal, requester=principal, target=agent)


def test_the_example_of_the_specification() -> None:
    confirm = asked(erase, {"folder": "Archive"})
    assert confirm.hash is not None
    assert confirm.hash.algo == "sha-256"
    assert confirm.hash.digest == hashlib.sha256(EXAMPLE.encode()).digest()
    assert base64.b64encode(confirm.hash.digest) == b"R2Foupf+kFL+Ruq0gRBBeMfAvkCGKjZQ7jnQI1eICxM="
    assert encode(confirm) == (
        "<confirm xmlns='urn:fluux:agent:0#confirm' id='c-5f0b7a' task='t-9f4c2e81d07b4b6fa3c5'"
        " principal='alice@example.com'><action type='mail.erase' version='1.2.0'>"
        "<param name='folder'>Archive</param>"
        "<params type='application/json'>{\"days\":30}</params></action><risk level='high'/>"
        "<hash xmlns='urn:xmpp:hashes:2' algo='sha-256'>"
        "R2Foupf+kFL+Ruq0gRBBeMfAvkCGKjZQ7jnQI1eICxM=</hash>"
        "<expires>2026-12-01T08:15:00Z</expires></confirm>"
    )


def test_texts_stand_as_text_and_all_else_as_json() -> None:
    action = asked(anything, {"text": "a\r\nb", "number": 1e20, "names": ["b", "a"]}).action
    assert {param.name: param.text for param in action.params} == {
        "text": "a\r\nb",
        "colour": "red",
    }
    assert action.json_params is not None
    assert json.loads(bytes(action.json_params.json)) == {
        "number": 1e20,
        "flag": False,
        "words": [],
        "names": ["a", "b"],
        "table": None,
    }


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\ufffe", "\uffff"])
def test_text_that_xml_cannot_carry_stands_in_json(character: str) -> None:
    confirm = asked(anything, {"text": f"a{character}b", "table": {character: [character]}})
    assert "text" not in {param.name for param in confirm.action.params}
    again = read(encode(confirm), Confirm)
    values = parameters_of(again.action)
    assert values["text"] == f"a{character}b"
    assert values["table"] == {character: [character]}
    assert again.hash is not None
    assert digest_of(AGENT, again) == again.hash.digest


@pytest.mark.parametrize(
    ("declared", "values", "name"),
    [
        (erase, {"folder": "a", "days": 2**53}, "days"),
        (erase, {"folder": "a", "days": -(2**53)}, "days"),
        (anything, {"text": "a", "table": {"x": [{"y": 2**60}]}}, "table"),
    ],
)
def test_what_has_no_canonical_form_is_refused_by_name(
    declared: Skill, values: dict[str, Any], name: str
) -> None:
    with pytest.raises(StanzaError) as refused:
        action_of(declared, prepare(declared, json=json.dumps(values)))
    assert refused.value.condition == "bad-request"
    assert refused.value.application == (InvalidParam(name=name),)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_default_that_is_not_finite_is_refused(number: float) -> None:
    struct = msgspec.defstruct("Arguments", [("number", float)])
    with pytest.raises(StanzaError, match="not finite"):
        action_of(anything, struct(number))


def test_the_largest_integer_is_fine() -> None:
    assert (
        parameters_of(asked(erase, {"folder": "", "days": 2**53 - 1}).action)["days"] == 2**53 - 1
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"100000000000000000000", b"100000000000000000000"),
        (b"9007199254740993", b"9007199254740992"),
        (b"-9007199254740993", b"-9007199254740992"),
    ],
)
def test_untrusted_numbers_are_read_as_doubles(text: bytes, number: bytes) -> None:
    """RFC 8785 knows no other numbers; the text of a double may have no exponent."""
    written = ActionParams(json=msgspec.Raw(b'{"n":%b}' % text))
    action = Action(type="a", json_params=written)
    assert parameters_of(action) == {"n": float(number)}
    assert rfc8785.dumps(parameters_of(action)) == b'{"n":%b}' % number


@pytest.mark.parametrize("text", [b"[]", b"1", b"NaN", b'{"a":NaN}', b"{", b""])
def test_parameters_that_are_no_object_have_no_digest(text: bytes) -> None:
    confirm = Confirm(
        id="c", action=Action(type="a", json_params=ActionParams(json=msgspec.Raw(text)))
    )
    with pytest.raises(ValueError):  # noqa: PT011 - whatever says so
        digest_of(AGENT, confirm)


@pytest.mark.parametrize("microsecond", [0, 500_000, 123_000, 123_456])
@pytest.mark.parametrize("precision", ["auto", "seconds", "milliseconds", "microseconds"])
def test_a_digest_is_right_however_precisely_its_time_is_written(
    precision: str, microsecond: int
) -> None:
    at = datetime(2026, 12, 1, 8, 15, 0, microsecond, tzinfo=UTC)
    text = at.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
    confirm = Confirm(id="c", action=Action(type="a"), expires=datetime.fromisoformat(text))
    covered = (
        f'{{"agent":"agent.example.com","confirmation":"c","expires":"{text}","params":{{}},'
        '"principal":null,"skill":"a","task":null,"version":null}'
    )
    digest = Hash(algo="sha-256", digest=hashlib.sha256(covered.encode()).digest())
    agent = JID.parse("agent.example.com")
    assert has_digest(agent, msgspec.structs.replace(confirm, hash=digest))
    other = msgspec.structs.replace(digest, digest=bytes(32))
    assert not has_digest(agent, msgspec.structs.replace(confirm, hash=other))
    assert not has_digest(agent, confirm)


def test_the_seed_has_a_digest_too() -> None:
    confirm = Confirm(id="action-7742", action=Action(type="send-email"))
    covered = (
        b'{"agent":"agent.example.com","confirmation":"action-7742","expires":null,"params":{},'
        b'"principal":null,"skill":"send-email","task":null,"version":null}'
    )
    assert digest_of(JID.parse("agent.example.com/x"), confirm) == hashlib.sha256(covered).digest()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.floats(allow_nan=False, allow_infinity=False),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=3),
)
def test_whoever_has_the_message_computes_the_same(
    text: str, number: float, table: dict[str, Any]
) -> None:
    values = {"text": text, "number": number, "table": table}
    confirm = asked(anything, values)
    again = read(encode(confirm), Confirm)
    assert again.hash == confirm.hash
    assert again.hash is not None
    assert digest_of(AGENT, again) == again.hash.digest
    # And by the letter of the specification, with nothing of ours.
    shown = {param.name: param.text for param in again.action.params}
    assert again.action.json_params is not None
    shown |= json.loads(bytes(again.action.json_params.json))
    covered = rfc8785.dumps(
        {
            "agent": "assistant@agent.example.com",
            "confirmation": "c-5f0b7a",
            "expires": "2026-12-01T08:15:00Z",
            "params": shown,
            "principal": "alice@example.com",
            "skill": "anything",
            "task": "t-9f4c2e81d07b4b6fa3c5",
            "version": "2",
        }
    )
    assert hashlib.sha256(covered).digest() == again.hash.digest
    arguments = prepare(anything, json=json.dumps(values))
    assert covers(again, request_of(), anything, arguments)


def test_any_change_is_another_digest() -> None:
    confirm = asked(erase, {"folder": "Archive"})
    replace = msgspec.structs.replace
    action = confirm.action
    others = [
        replace(confirm, id="c-2"),
        replace(confirm, task="t-2"),
        replace(confirm, principal=JID.parse("bob@example.com")),
        replace(confirm, expires=EXPIRES.replace(minute=16)),
        replace(confirm, action=replace(action, type="mail.read")),
        replace(confirm, action=replace(action, version="1.2.1")),
        replace(confirm, action=replace(action, version=None)),
        replace(confirm, action=replace(action, params=())),
        replace(confirm, action=replace(action, json_params=None)),
        replace(confirm, action=replace(action, params=(ActionParam(name="folder", text="a"),))),
    ]
    digests = {digest_of(AGENT, other) for other in (confirm, *others)}
    digests.add(digest_of(JID.parse("agent.example.com"), confirm))
    assert len(digests) == len(others) + 2


def test_only_what_was_confirmed_is_covered() -> None:
    confirm = asked(erase, {"folder": "Archive"})
    same, other = ({"folder": "Archive", "days": days} for days in (30, 31))
    assert covers(confirm, request_of(), erase, prepare(erase, json=json.dumps(same)))
    assert not covers(confirm, request_of(), erase, prepare(erase, json=json.dumps(other)))
    bob = JID.parse("bob@example.com")
    assert not covers(confirm, request_of(bob), erase, prepare(erase, json=json.dumps(same)))

    @skill(name="mail.erase", version="1.3.0")
    def newer(folder: str, days: int = 30) -> None:
        """Erase mail."""

    assert not covers(confirm, request_of(), newer, prepare(newer, json=json.dumps(same)))


@given(
    st.integers(0, 2**42),
    st.floats(0, 10**7, allow_nan=False),
    st.none() | st.integers(0, 2**42),
)
def test_a_question_lapses_within_the_deadline(
    now: int, seconds: float, deadline: int | None
) -> None:
    found = lapses(now, seconds, deadline)
    if deadline is None:
        assert found % 1000 == 0
        assert 0 <= found - (now + round(seconds * 1000)) < 1000
    else:
        assert found <= deadline
        assert found == min(lapses(now, seconds, None), found)


@pytest.mark.parametrize(
    "values",
    [
        {"text": "x" * MOST_BYTES},
        {"text": "ü" * (MOST_BYTES // 2)},
        {"text": "\n" * MOST_LINES},
        {"text": "a", "words": ["x\ny"] * (MOST_LINES // 2)},
        {"text": "a", "table": {"k": [{"k": "a\u2028b\x0bc\rd" * 40}]}},
        {"text": "a", "words": ["x" * 100] * 200},
    ],
)
def test_what_nobody_could_read_is_not_asked(values: dict[str, Any]) -> None:
    with pytest.raises(StanzaError) as caught:
        asked(anything, values)
    assert caught.value.condition == "policy-violation"
    assert caught.value.application == (TooBig(limit=MOST_BYTES),)
    assert "too long to be shown" in caught.value.text


@pytest.mark.parametrize(
    "values",
    [{"text": "x" * (MOST_BYTES - 200)}, {"text": "x\n" * (MOST_LINES - 10)}, {"text": ""}],
)
def test_what_can_be_read_is_asked(values: dict[str, Any]) -> None:
    assert asked(anything, values).hash is not None


def test_a_call_shows_at_most_100_lines_for_confirmation() -> None:
    """A number is a line."""
    assert asked(erase, {"folder": "x\n" * 99, "days": 1}).hash is not None
    with pytest.raises(StanzaError, match="101 lines, of at most"):
        asked(erase, {"folder": "x\n" * 100, "days": 1})


def test_what_was_approved_under_another_limit_stays_approved() -> None:
    arguments = prepare(anything, json=json.dumps({"text": "x" * MOST_BYTES}))
    action = action_of(anything, arguments)
    confirm = asked(anything, {"text": "y"})
    bigger = msgspec.structs.replace(confirm, action=action, hash=None)
    assert not covers(bigger, request_of(), anything, arguments)  # and raises nothing
