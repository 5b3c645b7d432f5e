"""Rooms of real servers decide: by votes of those who may, across a kill of the service."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.sax.saxutils import quoteattr

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.chatting import body
from tests.servers.clients import Element, SlixClient
from tests.servers.room_people import MUC, Occupant, person, presence_of
from tests.servers.talk import execute, login, result
from tests.servers.tasking import CONFIRM, accepted, decision, get, in_state
from tests.servers.watching import assert_result, wait_for

pytestmark = [pytest.mark.servers, pytest.mark.both_servers]

UP, DOWN = "\U0001f44d", "\U0001f44e"
NICK = "assistant"
SKILL = '''
from pathlib import Path
from component.skills import skill

@skill(name="pay", destructive=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    with Path("effects").open("a") as effects:
        effects.write(f"paid {amount}\\n")
    return f"paid {amount}"
'''


class Ops:
    """A room of a server, the service that asks it, and its occupants."""

    def __init__(self, server: Server, agent: AgentProcess, room: str) -> None:
        self.server = server
        self.agent = agent
        self.room = room
        self.assistant = f"{NICK}@{server.component_domain}"
        self._occupants: list[SlixClient] = []

    def enter(self, client: SlixClient, nick: str, *, shows_accounts: bool | None = None) -> None:
        """Enter the room; who creates it decides whether it shows accounts."""
        to = quoteattr(f"{self.room}/{nick}")
        client.send_raw(f"<presence to={to}><x xmlns='{MUC}'/></presence>")
        client.presences.take(presence_of(f"{self.room}/{nick}", "110"))
        if shows_accounts is not None:
            whois = "anyone" if shows_accounts else "moderators"
            fields = {
                "FORM_TYPE": f"{MUC}#roomconfig",
                "muc#roomconfig_whois": whois,
                "muc#roomconfig_persistentroom": "1",
            }
            form = "".join(
                f"<field var='{var}'><value>{value}</value></field>"
                for var, value in fields.items()
            )
            form = f"<x xmlns='jabber:x:data' type='submit'>{form}</x>"
            assert_result(client.iq(self.room, f"<query xmlns='{MUC}#owner'>{form}</query>", "set"))
        self._occupants.append(client)

    def joined(self, times: int = 1) -> None:
        wait_for(lambda: self.agent.log("joined a room"), lambda found: len(found) >= times)

    def ask(self, client: SlixClient, amount: int) -> str:
        """Have something paid; return the id of the task."""
        wanted = execute("pay", attributes="mode='async'", json=f'{{"amount": {amount}}}')
        return accepted(client.iq(self.assistant, wanted, "set"))

    def question(self, client: SlixClient) -> Element:
        """The message that asks in the room."""
        return client.messages.take(
            lambda one: self._is_said(one) and one.find(f"{{{CONFIRM}}}confirm") is not None
        )

    def hears(self, client: SlixClient, words: str) -> Element:
        """The next message of the agent in the room that has these words."""
        return client.messages.take(lambda one: self._is_said(one) and words in body(one))

    def _is_said(self, one: Element) -> bool:
        is_mine = one.get("from") == f"{self.room}/{NICK}"
        return is_mine and one.get("type") == "groupchat" and one.find("{*}body") is not None

    def react(self, client: SlixClient, to: Element, *emoji: str, inside: str = "") -> None:
        """React to a message of the room, by the id that the room has given it, or else its own:
        Debian's Prosody keeps no archives of rooms, and gives messages no ids.
        """
        ids = [
            one.attrib["id"]
            for one in to.findall("{urn:xmpp:sid:0}stanza-id")
            if one.get("by") == self.room
        ]
        known = ids[0] if ids else to.get("id")
        reactions = "".join(f"<reaction>{one}</reaction>" for one in emoji)
        self.say(
            client,
            f"<reactions xmlns='urn:xmpp:reactions:0' id='{known}'>{reactions}</reactions>{inside}",
        )

    def say(self, client: SlixClient, inside: str) -> str:
        """Send a message to the room, and wait until it has come back."""
        id_ = str(uuid4())
        client.send_raw(f"<message to='{self.room}' type='groupchat' id='{id_}'>{inside}</message>")
        client.messages.take(lambda one: one.get("id") == id_)
        return id_

    @property
    def effects(self) -> list[str]:
        file = self.agent.directory / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def until_paid(self, *expected: str) -> None:
        wait_for(lambda: self.effects, lambda found: found == list(expected))


@contextmanager
def opened(
    server: Server, directory: Path, name: str, approvers: tuple[str, ...] = (), **rule: Any
) -> Iterator[Ops]:
    room = f"{name}@conference.{server.host}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "own.py").write_text(SKILL)
    wanted = {"skills": ["pay"], "approvers": [f"room:{room}", *approvers], **rule}
    agent = AgentProcess(server, directory, skills__modules=["./own.py"], policy__rules=[wanted])
    try:
        yield Ops(server, agent, room)
    finally:
        agent.close()


def test_two_approve_across_a_kill_and_neither_the_requester_nor_a_bot_does(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server = xmpp_server
    with (
        opened(
            server, tmp_path / "agent", "ops", affiliation="admin", need=2, not_requester=True
        ) as ops,
        person(server, "juliet") as juliet,
        person(server, "romeo") as romeo,
        person(server, "helper") as helper,
        login(server, "mallory") as mallory,
    ):
        ops.enter(juliet, "Juliet", shows_accounts=True)
        # Mallory is a bot.
        for client, nick in ((romeo, "Romeo"), (helper, "Helper"), (mallory, "Mallory")):
            account = client.jid.partition("/")[0]
            Occupant(juliet, ops.room, "Juliet").administrate(jid=account, affiliation="admin")
            ops.enter(client, nick)
        ops.agent.start()
        ops.joined()
        task = ops.ask(juliet, 5)
        asked = ops.question(romeo)
        assert "amount: 5" in body(asked)
        assert f"For {server.jid('juliet')}" in body(asked)

        # None of these is a vote.
        forged = (
            f"<x xmlns='{MUC}#user'><item affiliation='owner' role='moderator'"
            f" jid={quoteattr(romeo.jid)}/></x>"
            "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='somebody'/>"
        )
        ops.react(mallory, asked, UP)
        ops.react(mallory, asked, UP, inside=forged)
        mark = f"<x xmlns='{MUC}#user'/>"
        mallory.send_raw(
            f"<message to='{ops.room}/{NICK}' type='chat'><body>yes</body>{mark}</message>"
        )
        ops.react(juliet, asked, UP)
        assert "requested this yourself" in body(ops.hears(juliet, "Juliet: "))

        ops.react(romeo, asked, UP)
        first = ops.hears(helper, f"1 of 2: approved by {server.jid('romeo')}.")
        replaced = first.find("{urn:xmpp:message-correct:0}replace")
        assert replaced is not None
        assert replaced.get("id") == asked.get("id")
        waiting = in_state(juliet, ops.assistant, task, "input-required")
        shown = waiting.find(f".//{{{CONFIRM}}}approvals")
        assert shown is not None
        assert (shown.get("need"), shown.get("given")) == ("2", "1")

        ops.agent.kill()
        ops.agent.start()
        ops.joined(2)
        ops.hears(helper, "I was away: please vote again")
        assert ops.effects == []
        ops.react(helper, asked, UP)
        ops.until_paid("paid 5")
        last = ops.hears(mallory, "Approved by")
        assert f"{server.jid('romeo')} and {server.jid('helper')}." in body(last)
        assert ops.agent.log(level="error") == []


def test_a_denial_ends_it_and_a_withdrawn_reaction_is_no_approval(
    xmpp_server: Server, tmp_path: Path
) -> None:
    with (
        opened(xmpp_server, tmp_path / "agent", "no", affiliation="none", need=2) as ops,
        person(xmpp_server, "juliet") as juliet,
        person(xmpp_server, "romeo") as romeo,
    ):
        ops.enter(juliet, "Juliet", shows_accounts=True)
        ops.enter(romeo, "Romeo")
        ops.agent.start()
        ops.joined()
        task = ops.ask(juliet, 6)
        asked = ops.question(juliet)
        ops.react(juliet, asked, UP)
        ops.hears(juliet, "1 of 2")
        ops.react(juliet, asked)
        ops.hears(juliet, "0 of 2 approvals.")
        ops.react(romeo, asked, UP)
        ops.hears(juliet, "1 of 2")
        # The same account under another nickname has the same vote.
        ops.enter(romeo, "Montague")
        ops.react(romeo, asked, UP)
        ops.react(juliet, asked, DOWN)
        ops.hears(romeo, f"Denied by {xmpp_server.jid('juliet')}.")
        found = in_state(juliet, ops.assistant, task, "failed")
        assert found.find(".//{*}denied") is not None
        assert ops.effects == []


def test_where_the_room_hides_accounts_people_are_asked_themselves(
    xmpp_server: Server, tmp_path: Path
) -> None:
    server = xmpp_server
    with (
        opened(
            server, tmp_path / "agent", "hidden", approvers=(server.jid("romeo"),), need=1
        ) as ops,
        person(server, "juliet") as juliet,
        person(server, "romeo") as romeo,
    ):
        ops.enter(juliet, "Juliet", shows_accounts=False)
        ops.agent.start()
        ops.joined()
        ops.ask(juliet, 7)
        asked = romeo.messages.take(lambda one: one.find(f"{{{CONFIRM}}}confirm") is not None)
        assert asked.get("type") == "chat"
        confirm = asked.find(f"{{{CONFIRM}}}confirm")
        assert confirm is not None
        answer = romeo.iq(ops.assistant, decision(confirm.attrib["id"], "approve"), "set")
        assert answer.get("type") == "result"
        ops.until_paid("paid 7")
        assert not [one for one in juliet.messages.all() if one.get("from") == f"{ops.room}/{NICK}"]

        # As a moderator, the agent sees the accounts.
        owner = Occupant(juliet, ops.room, "Juliet")
        owner.administrate(jid=ops.assistant, affiliation="admin")
        ops.agent.stop()
        ops.agent.start()
        ops.joined(2)
        ops.ask(juliet, 8)
        asked = ops.question(juliet)
        ops.react(juliet, asked, UP)
        ops.until_paid("paid 7", "paid 8")
        ops.hears(juliet, "Approved by Juliet.")


def test_if_nobody_can_be_asked_the_task_says_how_to_correct_it(
    xmpp_server: Server, tmp_path: Path
) -> None:
    with (
        opened(xmpp_server, tmp_path / "agent", "nobody") as ops,
        person(xmpp_server, "juliet") as juliet,
    ):
        ops.enter(juliet, "Juliet", shows_accounts=False)
        ops.agent.start()
        ops.joined()
        task = ops.ask(juliet, 9)
        wait_for(
            lambda: result(juliet.iq(ops.assistant, get(task))).get("state"),
            lambda state: state == "rejected",
        )
        said = "".join(result(juliet.iq(ops.assistant, get(task))).itertext())
        assert "Make the room non-anonymous, or the agent a moderator" in said
        assert ops.effects == []
