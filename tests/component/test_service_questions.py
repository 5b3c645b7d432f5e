"""Questions of skills in the whole service: a person refuses them, talks beside them, and is asked
in words.
"""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from component.models.messages import ToolCall
from component.models.protocol import Completion
from component.skills import Context, Denied, skill
from tests.component.link.router.wire import element
from tests.kit import AGENT, Peer, Script, anyio_backend, call, service
from tests.kit.xmpp import body
from xep.reactions import NAMESPACE as REACTIONS

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
OPENED: list[str] = []

SCHEMAS: dict[str, Any] = {
    "size": {"enum": ["small", "large", "medium"]},
    "priority": {"oneOf": [{"const": "p1", "title": "High"}, {"const": "p2", "title": "Low"}]},
    "extras": {"type": "array", "items": {"enum": ["milk", "sugar"]}},
    "cups": {"type": "integer", "minimum": 1},
    "day": {"type": "string", "format": "date"},
    "greeting": {"type": "string"},
    "sure": {"type": "boolean"},
    "guests": {"type": "array", "items": {"type": "object"}},
}


@skill(name="order", read_only=True, open_world=False)
async def order(context: Context, what: str) -> str:
    """Order something."""
    schema = {"type": "object", "properties": {what: SCHEMAS[what]}, "required": [what]}
    try:
        answer = await context.ask(f"Which {what}?", schema)
    except Denied as denied:
        return f"no {what}: {denied.reason or 'no reason'}"
    return f"{what}: {answer[what]}"


@skill(name="insist", read_only=True, open_world=False)
async def insist(context: Context) -> str:
    """Order something, and do nothing without an answer."""
    answer = await context.ask("Which size?", Size)
    return str(answer.size)


class Size(msgspec.Struct):
    size: Literal["small", "large", "medium"]


@skill(open_world=False, question="May I open the gate {gate}[ for {minutes} minutes]?")
def open_gate(gate: str, minutes: int = 5, note: str = "") -> str:
    """Open a gate: a description for models that nobody else wants to read."""
    OPENED.append(gate)
    return f"The gate {gate} is open."


SKILLS = (order, insist, open_gate)


async def question(juliet: Peer) -> tuple[str, str]:
    """Return the id and the text of the next question."""
    message = await juliet.receive(lambda stanza: "Please answer" in body(stanza))
    return message.id or "", body(message)


async def refuse(juliet: Peer, way: str, id_: str) -> str:
    juliet.take()
    if way == "thumb":
        down = element("reactions", element("reaction", "\U0001f44e"), xmlns=REACTIONS, id=id_)
        await juliet.send(element("message", down, type="chat", to=AGENT, id="r1"))
    else:
        await juliet.say(way.replace("{id}", id_))
    return await juliet.hear()


TEN = (
    (call("order", what="size"), "no", "no size: no reason"),
    (call("order", what="priority"), "No thanks!", "no priority: no reason"),
    (call("order", what="extras"), "nope", "no extras: no reason"),
    (call("order", what="cups"), "No, I drink from the pot.", "no cups: I drink from the pot."),
    (call("order", what="day"), "never mind", "no day: no reason"),
    (call("order", what="greeting"), "Cancel", "no greeting: no reason"),
    (call("order", what="sure"), "I'd rather not", "no sure: no reason"),
    (call("order", what="guests"), "/deny {id} nobody comes", "no guests: nobody comes"),
    (call("insist"), "thumb", "did not allow it"),
    (call("open_gate", gate="east"), "/deny", "did not allow it"),
)
"""Ten questions, the ways in which they are refused, and what the model reads then."""


@pytest.mark.parametrize("restarts", [False, True])
async def test_ten_questions_are_refused_in_ten_ways(tmp_path: Path, restarts: bool) -> None:
    OPENED.clear()
    model = Script()
    async with service(tmp_path, model=model, skills=SKILLS) as kit:
        juliet = kit.peer(JULIET)
        for wanted, way, outcome in TEN:
            model.add(wanted, "All right.")
            await juliet.say("Go on")
            id_, text = await question(juliet)
            assert "cancel" in text or "yes or no" in text, "it says how it is declined"
            if restarts:
                await kit.restart(kill=True)
            assert re.match(r"Declined\. |Denied: ", await refuse(juliet, way, id_))
            assert await juliet.hear("All right.") == "All right."
            assert outcome in model.asked.rpartition("Go on")[2]
            await kit.settled()
            assert not juliet.take(), "nothing is asked or said again"
        assert len(model.requests) == 2 * len(TEN)
    assert OPENED == []


async def test_a_person_talks_with_the_agent_while_a_question_is_open(tmp_path: Path) -> None:
    model = Script(call("order", what="size"), "It rains.", "One large cup.")
    async with service(tmp_path, model=model, skills=SKILLS) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("A tea, please")
        _, text = await question(juliet)
        assert text == (
            "Which size?\n\nPlease answer with small or large or medium within 24 hours."
            " To decline, say cancel."
        )
        assert await juliet.ask("What is the weather?", "It rains.") == "It rains."
        assert await juliet.ask("huge", "accept") == (
            "I can't accept that answer: size: expected one of small, large, medium."
            " To decline, say cancel."
        )
        assert await juliet.ask("large", "Thank") == "Thank you, I'll continue."
        assert await juliet.hear("One large cup.") == "One large cup."
        assert "size: large" in model.asked


async def test_a_confirmation_has_words_for_people_and_shows_all_on_request(
    tmp_path: Path,
) -> None:
    OPENED.clear()
    model = Script(call("open_gate", gate="east", minutes=9, note="quietly"), "It is open.")
    async with service(tmp_path, model=model, skills=SKILLS) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Open the gate")
        _, text = await question(juliet)
        assert text == (
            "May I open the gate *east* for 9 minutes? Please answer yes or no within 24 hours."
            " Say *show all* to see everything."
        )
        for said in ("Show all.", "/show"):
            shown = await juliet.ask(said, "Skill")
            assert 'note: "quietly"' in shown
            assert "Skill: open_gate 1.0.0" in shown
        quick = await juliet.ask("yes", "yes")
        first, line = quick.split("\n")
        assert first == "I asked only a moment ago: please say *yes* again."
        assert line.startswith("- open the gate *east* for 9 minutes, for juliet@capulet.example")
        assert re.search(r"\(/approve (\w{4}) or /deny \1\)", line)
        await kit.advance(3)
        assert await juliet.ask("yes", "Approved") == (
            "Approved: open the gate *east* for 9 minutes."
        )
        assert await juliet.hear("It is open.") == "It is open."
    assert OPENED == ["east"]


async def test_several_calls_are_asked_about_in_words(tmp_path: Path) -> None:
    OPENED.clear()
    calls = [ToolCall(f"c{gate}", "open_gate", f'{{"gate": "{gate}"}}') for gate in ("a", "b")]
    model = Script(Completion.of(tool_calls=tuple(calls)), "Both are open.")
    async with service(tmp_path, model=model, skills=SKILLS) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Open both")
        _, text = await question(juliet)
        assert text == (
            "May I do these 2 things? Please answer yes or no within 24 hours.\n\n"
            "1. open the gate *a*\n2. open the gate *b*"
        )
        await kit.advance(3)
        await juliet.say("yes")
        assert await juliet.hear("Both") == "Both are open."
    assert sorted(OPENED) == ["a", "b"]


async def test_a_reminder_that_a_person_asks_for_needs_no_second_yes(tmp_path: Path) -> None:
    wanted = call("schedule_add", when="in 5 minutes", goal="Remind her of tea.")
    model = Script(wanted, "I will remind you.", "Time for tea.")
    async with service(tmp_path, model=model) as kit:
        juliet = kit.peer(JULIET)
        assert await juliet.ask("Remind me of tea", "I will") == "I will remind you."
        assert "Remind her of tea." in await juliet.ask("/schedule", "tea")
        await kit.advance(360)
        assert await juliet.hear("Time") == "Time for tea."


async def test_policy_can_have_a_reminder_confirmed(tmp_path: Path) -> None:
    wanted = call("schedule_add", when="in 5 minutes", goal="Remind her of tea.", name="tea")
    settings = {"policy": {"rules": [{"skills": ["schedule_*"], "confirm": "always"}]}}
    model = Script(wanted, "I won't.")
    async with service(tmp_path, settings, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Remind me of tea")
        _, text = await question(juliet)
        assert text == (
            "May I do this *in 5 minutes* (*UTC* time), as *tea*: *Remind her of tea.*?"
            " Please answer yes or no within 24 hours."
        )
        await juliet.say("never mind")
        assert await juliet.hear("I won't.") == "I won't."
