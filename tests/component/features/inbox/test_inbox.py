"""The inbox of a person: what is in it, and what can be done from there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from component.commands import Asking
from component.skills import Context, prepare
from component.skills import call as skill_call
from component.skills.calling import Threads
from component.skills.form_fields import NOTHING_CHOSEN
from tests.kit import AGENT, Kit, Peer, Script, anyio_backend, call, service
from tests.kit.xmpp import body
from tests.servers.talk import execute
from xep import pubsub
from xep.binding import encode, read
from xep.chat_markers import Displayed
from xep.commands import Command
from xep.data_forms import Field, Form
from xep.fluux_agent.execute import Result
from xep.jid import JID
from xep.json_containers import Json
from xep.pubsub_event import Event, Item, Retract

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
NURSE = "nurse@capulet.example/kitchen"
HOUR_S = 3600
NODE = "urn:fluux:agent:0#inbox"
SKILLS = '''
import msgspec

from component.skills import Context, skill

class Recipient(msgspec.Struct):
    name: str

@skill(title="Open a gate", destructive=True)
def gate_open(name: str) -> str:
    """Open a gate."""
    return f"The gate {name} is open."

@skill(title="Tide", read_only=True, open_world=False)
def tide() -> str:
    """Say how high the sea is."""
    return "The tide is high."

@skill(title="News", read_only=True)
def news() -> str:
    """Say what others have written."""
    return "The sky is red."

@skill(title="Walk", destructive=False, open_world=False, durable=True)
async def walk(context: Context, fails: bool = False) -> str:
    """Walk to the sea."""
    await context.sleep(600)
    if fails:
        raise RuntimeError
    return "You are at the sea."

@skill(title="Letter", destructive=False, open_world=False, durable=True)
async def letter(context: Context) -> str:
    """Write a letter."""
    to = await context.ask("To whom?", Recipient)
    return f"Written to {to.name}."
'''


def settings(directory: Path, **more: Any) -> dict[str, Any]:
    """Return settings with the skills above, and without messages that nobody waits for."""
    (directory / "skills.py").write_text(SKILLS)
    return {
        "skills": {"modules": [str(directory / "skills.py")]},
        "notifications": {"quiet": ""},
        "memory": {"learn_after_mins": 0},
        "agent": {"notice": ""},
        **more,
    }


def schedule(skill: str = "tide", **more: Any) -> Any:
    person = {"when": "every 2 hours", "principal": "juliet@capulet.example"}
    return [{"name": "sea", "skill": skill} | person | more]


async def does(kit: Kit, peer: Peer, text: str) -> str:
    """Say something, and return the next body after everybody has done what follows from it."""
    await kit.settled()
    peer.take()
    await peer.say(text)
    await kit.advance(1)
    return "\n".join(filter(None, map(body, peer.take())))


async def listed(kit: Kit, person: str = JULIET) -> list[str]:
    """Return the kinds and texts of the entries of an inbox, in order."""
    jid = JID.parse(person)
    asking: Asking = kit.kernel.commands.asking(jid.bare, JID.parse(AGENT), client=jid)
    command = kit.kernel.commands.get("inbox", asking)
    assert command is not None
    found = await command.run(asking, command.read())
    assert isinstance(found.value, Sequence)
    rows: Any = found.value
    return [f"{row.kind}: {row.text}" for row in rows]


GATE = 'question: "Open a gate": name: *north*'
TIDE = "result: The tide is high."
WALKED = "result: You are at the sea."


async def test_everything_that_waits_is_listed_matter_by_matter(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path, schedule=schedule())) as kit:
        juliet = kit.peer(JULIET)
        assert await does(kit, juliet, "/inbox") == "Nothing is waiting for you."
        for line in ("/run walk", "/run gate_open name=north", "/run walk fails=true"):
            await does(kit, juliet, line)
        await kit.jump(2 * HOUR_S, stride_s=600)
        await kit.advance(1)
        assert await does(kit, juliet, "/inbox") == (
            "*Open a gate*\n"
            '1. Question, today at 12:00 UTC: "Open a gate": name: *north* (before tomorrow at'
            " 12:00 UTC: yes or no)\n"
            "*Walk*\n"
            "2. Failed, today at 12:10 UTC: Walk failed: The agent failed to serve this.\n"
            "*sea*\n"
            "3. Result, today at 14:00 UTC: The tide is high.\n"
            "*Walk*\n"
            "4. Result, today at 12:10 UTC: You are at the sea.\n\n"
            "/inbox 1 yes, or /inbox 1 no and why, answers a question.\n"
            "/inbox 1 shows all of an entry.\n"
            "/inbox done 2 puts it away, /inbox done all everything but questions."
        )
        assert 'name: "north"' in await does(kit, juliet, "/inbox 1 show")
        assert "/task " in await does(kit, juliet, "/inbox 2")
        assert await does(kit, juliet, "/inbox done 3") == "1 entry put away."
        assert "not in your inbox any more" in await does(kit, juliet, "/inbox 3")
        assert await does(kit, juliet, "/inbox done all") == "2 entries put away."
        assert "answer it" in await does(kit, juliet, "/inbox 1 done")
        await kit.restart(kill=True)
        assert await listed(kit) == [GATE]
        assert await listed(kit, NURSE) == []


async def test_a_question_is_answered_by_its_number_in_the_list_that_was_shown(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, settings(tmp_path)) as kit:
        juliet, nurse = kit.peer(JULIET), kit.peer(NURSE)
        await juliet.say("/run gate_open name=north")
        await kit.advance(1)
        assert "Send /inbox first" in await does(kit, juliet, "/inbox 1 yes")
        await does(kit, juliet, "/inbox")
        await juliet.say("/run gate_open name=south")
        assert await does(kit, juliet, "/inbox 1 no, it is too late") == (
            'Denied: "Open a gate": name: *north*.\n'
            "gate_open was not allowed: it is too late. Asking again does not change this."
        )
        first = await listed(kit)
        assert first == [GATE.replace("north", "south")]
        (id_,) = [
            one.id
            for one in await kit.kernel.tasks.service.open_questions(
                JID.parse(JULIET).bare, JID.parse(AGENT)
            )
        ]
        assert "not in your inbox" in await does(kit, nurse, f"/inbox {id_} yes")
        assert "Write just yes" in await does(kit, juliet, f"/inbox {id_} yes, if you must")
        forwarded = "<forwarded xmlns='urn:xmpp:forward:0'/>"
        await juliet.send(
            f"<message to='{AGENT}' type='chat' id='f'><body>/inbox {id_} yes</body>{forwarded}"
            "</message>"
        )
        assert "more than a plain message" in await juliet.hear("haven't")
        assert await does(kit, juliet, f"/inbox {id_} yes") == (
            'Approved: "Open a gate": name: *south*.\nThe gate south is open.'
        )
        assert await listed(kit) == ["result: The gate south is open."]


async def test_a_question_for_words_is_answered_and_declined(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run letter")
        await juliet.say("/run letter")
        await kit.advance(1)
        assert "in words)" in await does(kit, juliet, "/inbox")
        assert await does(kit, juliet, "/inbox 1 answer done") == (
            "Thank you, I'll continue.\nWritten to done."
        )
        assert "Declined: To whom?" in await does(kit, juliet, "/inbox 2 never mind")


async def test_a_question_that_was_withheld_is_shown_before_a_yes_counts(tmp_path: Path) -> None:
    work = schedule("gate_open", params={"name": "north"})
    async with service(tmp_path, settings(tmp_path, schedule=work)) as kit:
        juliet = kit.peer(JULIET)
        await does(kit, juliet, "/stop-contact")
        await kit.jump(2 * HOUR_S + 1)
        await kit.advance(1)
        assert "May I" not in "".join(map(body, juliet.take()))
        assert "Question" in await does(kit, juliet, "/inbox")
        assert 'name: "north"' in await does(kit, juliet, "/inbox 1 yes")
        assert (await does(kit, juliet, "/inbox 1 yes")).startswith("Approved: ")


async def test_who_waits_for_others_sees_that_and_who_may_decide_gets_the_question(
    tmp_path: Path,
) -> None:
    rule = {"skills": ["gate_open"], "confirm": "always", "approvers": ["nurse@capulet.example"]}
    async with service(tmp_path, settings(tmp_path, policy={"rules": [rule]})) as kit:
        juliet, nurse = kit.peer(JULIET), kit.peer(NURSE)
        await juliet.say("/run gate_open name=north")
        await kit.advance(1)
        assert await listed(kit) == ["waiting: Open a gate is waiting for a confirmation."]
        await does(kit, juliet, "/inbox")
        assert "not a question" in await does(kit, juliet, "/inbox 1 yes")
        assert ": for juliet@capulet.example: " in await does(kit, nurse, "/inbox")
        assert (await does(kit, nurse, "/inbox 1 yes")).startswith("Approved: ")
        assert await listed(kit) == ["result: The gate north is open."]


async def test_a_task_that_was_set_aside_needs_attention(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path)) as kit:
        await does(kit, kit.peer(JULIET), "/run walk")
        await kit.kernel.storage.write(
            lambda database: database.execute("UPDATE tasks SET set_aside = 'It crashed.'")
        )
        assert await listed(kit) == ["set-aside: Walk: It crashed."]


async def test_a_marker_of_a_client_removes_what_was_sent_until_then(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path, schedule=schedule())) as kit:
        juliet = kit.peer(JULIET)

        async def displays(words: str) -> None:
            found = [one.id or "" for one in juliet.stanzas if words in body(one)]
            marker = encode(Displayed(id=found[-1]))
            await juliet.send(f"<message to='{AGENT}' type='chat'>{marker}</message>")
            await kit.advance(1)

        pong = await does(kit, juliet, "/ping")
        await juliet.say("/run walk")
        await kit.jump(2 * HOUR_S + 1)
        await kit.advance(1)
        await displays(pong)  # it came before
        assert sorted(await listed(kit)) == [TIDE, WALKED]
        await kit.restart(kill=True)
        await displays("tide")
        assert await listed(kit) == []
        await kit.jump(2 * HOUR_S + 1)
        await kit.advance(1)
        assert await listed(kit) == [TIDE]
        await displays(await does(kit, juliet, "/ping"))  # it came after
        await kit.restart(kill=True)
        assert await listed(kit) == []


async def test_what_is_held_is_shown_and_can_be_dropped(tmp_path: Path) -> None:
    quiet = {"quiet": "13:00-23:00"}
    async with service(
        tmp_path, settings(tmp_path, schedule=schedule(), notifications=quiet)
    ) as kit:
        juliet = kit.peer(JULIET)
        await kit.jump(2 * HOUR_S + 1)
        assert "1. Held, today at 14:00 UTC: The tide is high." in await does(kit, juliet, "/inbox")
        assert await does(kit, juliet, "/inbox 1 done") == "1 entry put away."
        assert await does(kit, juliet, "/notifications") == "There are no held notifications."


async def test_a_form_lists_the_entries_and_what_can_be_done_with_them(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run gate_open name=north")
        await kit.advance(1)

        async def run(command: Command) -> Command:
            return (await juliet.iq("set", encode(command))).require(Command)

        asked = await run(Command(node="command/inbox", action="execute"))
        assert asked.form is not None
        entry, action = asked.form.field("entry"), asked.form.field("action")
        assert entry is not None
        assert action is not None
        (option,) = [one for one in entry.options if one.value != NOTHING_CHOSEN]
        assert option.label is not None
        assert "north" in option.label
        assert {one.value for one in action.options} >= {"show", "yes", "no", "answer", "done"}
        fields = (
            Field(var="entry", values=(option.value,)),
            Field(var="action", values=("yes",)),
        )
        form = Form(type="submit", fields=fields)
        done = await run(Command(node=asked.node, sessionid=asked.sessionid, form=form))
        assert done.notes[0].text.startswith("Approved: ")
        assert "The gate north is open." in await juliet.hear("north is")


def told(peer: Peer) -> list[Item | Retract]:
    """Return what the events of the node have told a subscriber since the last call."""
    found: list[Item | Retract] = []
    for stanza in peer.take():
        event = stanza.payload(Event) if stanza.kind == "message" else None
        if event is not None and event.items is not None:
            found += event.items.items
    return found


def row(item: Item | pubsub.Item) -> Any:
    """Return the JSON object of an item."""
    return msgspec.json.decode(read(item.payloads[0].text, Json).value)


async def test_subscribers_of_the_node_are_told_of_their_own_entries(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path)) as kit:
        juliet, nurse = kit.peer(JULIET), kit.peer(NURSE)

        async def items(peer: Peer) -> Sequence[pubsub.Item]:
            asked = pubsub.Pubsub(items=pubsub.Items(node=NODE))
            answer = (await peer.iq("get", encode(asked))).require(pubsub.Pubsub)
            assert answer.items is not None
            return answer.items.items

        for peer in (juliet, nurse):
            wanted = pubsub.Subscribe(node=NODE, jid=peer.jid.bare)
            await peer.iq("set", encode(pubsub.Pubsub(subscribe=wanted)))
        await juliet.say("/run gate_open name=north")
        await kit.advance(1)
        (event,) = told(juliet)
        (item,) = await items(juliet)
        assert isinstance(event, Item)
        assert (event.id, row(event)) == (item.id, row(item))
        assert row(item) == {
            "id": item.id,
            "kind": "question",
            "title": "Open a gate",
            "text": '"Open a gate": name: *north*',
            "at": "2026-11-20T12:00:00Z",
            "matter": row(item)["task"],
            "priority": "attention",
            "expires": "2026-11-21T12:00:00Z",
            "task": row(item)["task"],
        }
        await juliet.say(f"/deny {item.id}")
        await kit.advance(1)
        assert told(juliet) == [Retract(id=item.id or "")]
        assert (await items(juliet), await items(nurse), told(nurse)) == ((), (), [])


@pytest.mark.parametrize(("skill", "asks"), [("tide", False), ("news", True)])
async def test_the_model_reads_the_inbox_with_the_taints_of_what_is_in_it(
    tmp_path: Path, skill: str, asks: bool
) -> None:
    """What strangers have written in it makes a call with effects need a confirmation."""
    model = Script(call("inbox"), call("letter"), otherwise="Well.")
    flows = {"flows": [{"of": ["web"], "to": ["*"], "then": "confirm"}]}
    work = settings(tmp_path, schedule=schedule(skill), policy=flows)
    async with service(tmp_path, work, model=model) as kit:
        juliet = kit.peer(JULIET)
        await kit.jump(2 * HOUR_S + 1)
        await does(kit, juliet, "/new")  # the session does not have the notification
        await juliet.say("What is waiting for me?")
        await kit.advance(5)
        shown = [message.text for message in model.requests[1].messages]
        assert "- sea: Result, today at 14:00 UTC: The" in shown[-1]
        assert ("May I" in "".join(map(body, juliet.take()))) == asks


async def test_programs_read_the_inbox_by_the_skill_and_rooms_do_not(tmp_path: Path) -> None:
    async with service(tmp_path, settings(tmp_path)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run gate_open name=north")
        await kit.advance(1)
        answer = await juliet.iq("set", execute("inbox"))
        result = answer.require(Result)
        assert '"kind":"question"' in result.outputs[1].text
        skill = kit.kernel.environment.catalog.registry.get("inbox")
        assert skill is not None
        context = Context(
            principal="juliet@capulet.example",
            sender=JULIET,
            skill="inbox",
            address=AGENT,
            room="lobby@rooms.capulet.example",
        )
        arguments = prepare(skill, (), msgspec.Raw(b"{}"))
        said = await skill_call(skill, arguments, context, Threads(1, 1).share("juliet"))
        assert said.is_error
        assert "say it in private" in str(said.outputs[0])
