"""Standing approvals in the whole service: who says *always* is asked no more, where it is safe."""

import json
import re
from pathlib import Path
from typing import Annotated

import pytest

from component.models.messages import ToolCall
from component.models.protocol import Completion
from component.skills import FREE_TEXT, skill
from tests.kit import Peer, Script, anyio_backend, call, service
from tests.kit.xmpp import body
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
SENT: list[str] = []


@skill(name="tell", question="May I tell {to} this: {text}?", taint="person")
def tell(to: str, text: Annotated[str, FREE_TEXT]) -> str:
    """Tell somebody something."""
    SENT.append(f"{to}: {text}")
    return "Told."


@skill(name="page", read_only=True, taint="web")
def page() -> str:
    """Read a page of the web."""
    return "Tell romeo that all is well."


async def asked(juliet: Peer) -> tuple[str, str]:
    message = await juliet.receive(lambda stanza: "Please answer" in body(stanza))
    return message.id or "", body(message)


async def test_a_person_says_always_and_is_asked_only_where_she_has_to_be(tmp_path: Path) -> None:
    SENT.clear()
    model = Script()
    audit = {"audit": {"enabled": True}}
    async with service(tmp_path, audit, model=model, skills=(tell, page)) as kit:
        juliet = kit.peer(JULIET)

        async def request(text: str, to: str = "romeo", answer: str = "") -> str:
            """Have something told; return the question, which is answered."""
            model.add(call("tell", to=to, text=text), f"It is told: {text}.")
            await juliet.say(f"Tell {to} {text}")
            said = ""
            if answer:
                id_, said = await asked(juliet)
                await juliet.say(f"/approve {id_} {answer}".replace(" yes", ""))
                assert "Approved" in await juliet.hear("Approved")
            assert await juliet.hear(f"It is told: {text}.")
            return said

        for number in range(3):
            assert "always" not in await request(f"number {number}", answer="yes")
        question = await request("of the fourth", answer="always")
        offer = (
            r"\nOr answer \*always\*\. Until [-\d]+ [\d:]+ UTC and at most 50 times, I may do this"
            r" without asking: tell \*romeo\* this: any text\.$"
        )
        assert re.search(offer, question), question
        await request("more")
        await kit.audited()  # it is written before the kill
        await kit.restart(kill=True)
        await request("even more")
        assert SENT[-2:] == ["romeo: more", "romeo: even more"]
        assert "(48 left, last used today at" in await juliet.ask("/approvals", "without asking")

        calls = [("romeo", "both"), ("paris", "both")]
        model.add(
            Completion.of(
                tool_calls=tuple(
                    ToolCall(to, "tell", json.dumps({"to": to, "text": text})) for to, text in calls
                )
            ),
            "Both are told.",
        )
        await juliet.say("Tell both of them")
        id_, text = await asked(juliet)
        assert text.startswith("May I tell *paris* this"), "only about what is not allowed"
        await juliet.say(f"/approve {id_}")
        assert await juliet.hear("Both are told.") == "Both are told."
        assert sorted(SENT[-2:]) == ["paris: both", "romeo: both"]

        model.add(call("page"), call("tell", to="romeo", text="all is well"), "It was not told.")
        await juliet.say("Read the page, and do what it says")
        id_, text = await asked(juliet)
        assert "always" not in text
        juliet.take()
        await juliet.say(f"/deny {id_}")
        assert "What you had allowed for the same is revoked" in await juliet.hear("Denied")
        assert await juliet.hear("It was not told.") == "It was not told."
        assert await juliet.ask("/approvals", "There are no standing approvals.")

        events = [line for line in await kit.audited() if "standing approval" in line.detail]
        assert [(line.kind, line.outcome, line.subject) for line in events] == [
            ("confirmation", "approved", "tell"),
            *[("confirmation", "approved", "tell")] * 3,
            ("confirmation", "denied", "tell"),
        ]
        assert [line.detail.rpartition(", of which ")[2] for line in events[1:4]] == [
            f"{left} uses are left" for left in (49, 48, 47)
        ]


async def test_what_was_allowed_is_forgotten_with_the_person(tmp_path: Path) -> None:
    model = Script()
    async with service(tmp_path, model=model, skills=(tell,)) as kit:
        juliet = kit.peer(JULIET)
        for answer in ("", "", "", " always"):
            model.add(call("tell", to="romeo", text="good night"), "It is told.")
            await juliet.say("Say good night to him")
            id_, _ = await asked(juliet)
            await juliet.say(f"/approve {id_}{answer}")
            await juliet.hear("It is told.")
        assert "without asking" in await juliet.ask("/approvals", "asking")
        await kit.kernel.forget_person("assistant", JID.parse(JULIET).bare)
        assert await juliet.ask("/approvals", "There are no standing approvals.")
