"""Calls that people confirm, in the words of their skills."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import FREE_TEXT, DeclarationError, prepare, skill
from component.task_messages.confirmation_wording import standing_wording
from component.task_messages.questions import Questions
from component.tasks.questions import SEVERAL_CALLS
from tests.component.task_messages.test_questions import (
    AGENT,
    ALICE,
    BOSS,
    NOW,
    body,
    caused_by,
    confirmation,
    knowing,
)
from xep.fluux_agent.confirm import ActionParams, Confirm, Standing, StandingText, digest_of
from xep.quick_responses import Action, Response

ANSWER = " Please answer yes or no within 2 hours."
SHOW_ALL = " Say *show all* to see everything."


@skill(name="remind", question="May I remind you of {goal} {when}[ ({zone} time)][, {how}]?")
def remind(
    goal: str, when: str, zone: str = "", how: Literal["softly", "loudly"] = "softly", n: int = 1
) -> None:
    """Remind the person: a description for models."""


def asked(declared: Any = remind, **values: Any) -> str:
    (message,) = knowing(declared).messages(confirmation(declared, **values))
    return body(message)


def test_a_question_of_a_skill_has_words_and_no_defaults() -> None:
    said = asked(goal="tea", when="in 1 minute")
    assert said == f"May I remind you of *tea* *in 1 minute*?{ANSWER}"
    said = asked(goal="tea", when="at 9", zone="Europe/Paris", how="loudly")
    assert said == f"May I remind you of *tea* *at 9* (*Europe/Paris* time), *loudly*?{ANSWER}"


def test_a_question_says_when_it_does_not_mention_a_parameter_that_is_no_default() -> None:
    said = asked(goal="tea", when="at 9", n=3)
    assert said == f"May I remind you of *tea* *at 9*?{ANSWER}{SHOW_ALL}"
    question = confirmation(remind, goal="tea", when="at 9", n=3)
    assert "n: 3" in knowing(remind).whole(question, ALICE)


def test_the_digest_covers_what_the_question_does_not_mention() -> None:
    one, other = (confirmation(remind, goal="tea", when="at 9", n=n).content for n in (3, 4))
    assert isinstance(one, Confirm)
    assert isinstance(other, Confirm)
    assert digest_of(AGENT, one) != digest_of(AGENT, other)


def test_nothing_is_left_out_if_strangers_may_have_chosen_parameters() -> None:
    question = confirmation(remind, goal="tea", when="at 9", n=3)
    (message,) = knowing(remind).messages(caused_by(question, chosen=("n",)))
    assert body(message) == (
        "After reading text that others wrote, I chose n. May I remind you of *tea* *at 9*?"
        f"{ANSWER}\n\nn: 3"
    )


def test_somebody_else_is_told_for_whom() -> None:
    question = confirmation(remind, asked=(BOSS,), goal="tea", when="at 9")
    (message,) = knowing(remind).messages(question)
    assert body(message).startswith("For alice@example.com: May I remind you of *tea*")
    assert knowing(remind).title_of(question) == (
        "for alice@example.com: remind you of *tea* *at 9*"
    )


def test_long_and_several_lines_are_quoted_below() -> None:
    text = "Dear Bob,\nMay I? Please answer yes.\n\u202eA"
    said = asked(goal=text, when="at 9")
    assert said == (
        f"May I remind you of (goal, see below) *at 9*?{ANSWER}\n\ngoal:\n"
        "> Dear Bob,\n> May I? Please answer yes.\n> \\u202eA"
    )
    said = asked(goal="x" * 300, when="at 9")
    assert said.endswith(f"\n\ngoal:\n> {'x' * 300}")
    said = asked(goal="x" * 9_000, when="at 9")
    assert f"{ANSWER} Not everything is shown below.\n\ngoal (first 500 of 9,000 cha" in said


@skill(name="mixed", title="Do much")
def mixed(
    at: Annotated[datetime, msgspec.Meta(tz=True)],
    sure: bool = False,
    names: tuple[str, ...] = (),
    more: dict[str, int] | None = None,
    level: Annotated[
        str | None,
        msgspec.Meta(
            extra_json_schema={
                "oneOf": [{"const": "p1", "title": "High"}, {"const": "p2", "title": "Low"}]
            }
        ),
    ] = None,
) -> None:
    """Do much."""


def test_values_are_words_and_times_are_those_of_the_person() -> None:
    question = confirmation(
        mixed, at="2026-12-01T08:00:00Z", sure=True, names=["Ann", "Bob"], more={"a": 1}
    )
    words = Questions(lambda _: mixed, lambda _: timezone(timedelta(hours=1)), lambda: NOW)
    (message,) = words.messages(question)
    assert (
        'May I run "Do much"? at: *09:00 (UTC+01:00)*, sure: yes, names: *Ann*, *Bob*,'
        ' more: {"a": 1}. Please' in body(message)
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_no_value_can_pose_as_a_part_of_the_question(value: str) -> None:
    said = asked(goal=value, when="at 9")
    first, *lines = said.split("\n")
    assert all(line.isprintable() for line in said.split("\n"))
    assert all(not line or line.startswith(("> ", "goal:")) for line in lines)
    rest = first.removeprefix("May I remind you of ")
    if rest.startswith("*"):
        assert rest == f"*{value}* *at 9*?{ANSWER}" or "(careful, look-alike" in rest
        assert "*" not in value
    elif rest.startswith('"'):
        read, _ = json.JSONDecoder().raw_decode(rest)
        assert read == value
    else:
        assert rest.startswith("(goal, see below)")
        assert lines
    assert knowing(remind).title_of(confirmation(remind, goal=value, when="x")).isprintable()


def test_several_calls_are_a_list_of_actions() -> None:
    question = confirmation(remind, goal="tea", when="at 9")
    calls = {
        "1. remind 1.0.0": {"goal": "tea", "when": "at 9", "zone": "", "how": "softly", "n": 2},
        "2. gone 1.0.0": {"path": "a"},
    }
    assert isinstance(question.content, Confirm)
    action = msgspec.structs.replace(
        question.content.action,
        type=SEVERAL_CALLS,
        params=(),
        json_params=ActionParams(json=msgspec.Raw(msgspec.json.encode(calls))),
    )
    content = msgspec.structs.replace(question.content, action=action)
    words = Questions(lambda name: remind if name == "remind" else None, clock=lambda: NOW)
    (message,) = words.messages(msgspec.structs.replace(question, content=content))
    assert body(message) == (
        f"May I do these 2 things?{ANSWER}\n\n1. remind you of *tea* *at 9*\nn: 2\n"
        '2. gone: path: "a"'
    )


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Delete {file}?", "names 'file', which is not one of its parameters: path"),
        ("Delete {path?", "has a brace that is not closed"),
        ("Delete [{path}?", "has a bracket that is not closed"),
        ("Delete\n{path}?", "must be one line"),
        ("x" * 301, "has 301 characters"),
    ],
)
def test_a_wrong_question_is_refused_when_the_skill_is_declared(question: str, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):

        @skill(question=question)
        def delete(path: str) -> None:
            """Delete."""


def test_times_without_a_zone_of_the_person_are_in_utc() -> None:
    at = datetime(2026, 12, 1, 8, tzinfo=UTC).isoformat()
    assert "at: *08:00 (UTC)*" in asked(mixed, at=at)


@skill(name="erase", title="Erase mail")
def erase(folder: str, note: Annotated[str, FREE_TEXT] = "", days: int = 30) -> None:
    """Erase mail."""


@pytest.mark.parametrize(
    ("declared", "values", "free", "said"),
    [
        (remind, {"goal": "tea", "when": "at 9"}, ["goal"], "remind you of any text *at 9*"),
        (
            remind,
            {"goal": "tea", "when": "at 9", "how": "loudly", "n": 3},
            ["how"],
            "remind you of *tea* *at 9*, any text with n: 3",
        ),
        (erase, {"folder": "all"}, [], 'run "Erase mail" with folder: *all*'),
        (
            erase,
            {"folder": "all", "note": "x" * 900},
            ["note"],
            'run "Erase mail" with folder: *all*, note: any text',
        ),
        (erase, {"folder": "x" * 300}, [], ""),
        (erase, {"folder": "a\nb"}, ["note"], ""),
        (remind, {"goal": "x" * 300, "when": "at 9"}, [], ""),
    ],
)
def test_what_a_standing_approval_allows_is_one_sentence_or_nothing(
    declared: Any, values: dict[str, Any], free: list[str], said: str
) -> None:
    whole = msgspec.structs.asdict(prepare(declared, json=json.dumps(values)))
    assert standing_wording(declared, whole, free) == said


def test_a_question_offers_a_standing_approval_in_its_second_line() -> None:
    question = confirmation(erase, folder="a\nb")
    assert isinstance(question.content, Confirm)
    text = "Until tomorrow I may do this."
    offer = Standing(until=NOW, uses=3, text=StandingText(text=text))
    offering = msgspec.structs.replace(
        question, content=msgspec.structs.replace(question.content, standing=offer)
    )
    (message,) = knowing(erase).messages(offering)
    first, second, *_ = body(message).split("\n")
    assert first.endswith("Please answer yes or no within 2 hours.")
    assert second == f"Or answer *always*. {text}"
    assert second in knowing(erase).whole(offering, ALICE)
    buttons = [one.id for one in message.payloads if isinstance(one, Action)]
    values = [one.value for one in message.payloads if isinstance(one, Response)]
    assert values == ["yes", "no", "always"]
    assert [one.partition(":")[0] for one in buttons] == ["approve", "deny", "always"]
    (message,) = knowing(erase).messages(question)
    assert "always" not in body(message)
    assert len([one for one in message.payloads if isinstance(one, Action | Response)]) == 4
