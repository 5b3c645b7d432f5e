"""Questions that a room decides: asked there, answered by reactions, and shown as decided."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.skills import skill
from tests.kit import Kit, Peer, Script, anyio_backend, call, service
from tests.kit.rooms import Room, Rooms, Server
from tests.kit.xmpp import Xmpp, body
from xep.fluux_agent.confirm import Confirm
from xep.fluux_poll import Poll, PollClosed
from xep.hats import NAMESPACE as HATS
from xep.jid import JID
from xep.message_correction import Replace
from xep.muc import AdminItem, AdminQuery
from xep.stanza import IQ, Incoming
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

UP, DOWN = "\U0001f44d", "\U0001f44e"
ROOM = "ops@rooms.capulet.example"
FLUUX = "urn:fluux:agent:0"

done: list[str] = []


@skill(name="pay", destructive=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    done.append(f"paid {amount}")
    return f"paid {amount}"


def rule(**more: Any) -> dict[str, Any]:
    return {
        "agent": {"allowed_domains": ["capulet.example"]},
        "policy": {
            "rules": [
                {"skills": ["pay"], "confirm": "always", "approvers": [f"room:{ROOM}"]} | more
            ]
        },
    }


class World:
    """A service, a room that decides, and those in it."""

    def __init__(self, kit: Kit, rooms: Callable[[Xmpp], Rooms]) -> None:
        self.kit = kit
        self.rooms = rooms(kit.xmpp)
        self.room: Room = self.rooms.create("ops")
        self.room.shows_accounts = True
        self.peers: dict[str, Peer] = {}

    async def enter(self, name: str, affiliation: Any = "admin", nick: str = "") -> Peer:
        peer = self.peers[name] = self.kit.peer(f"{name}@capulet.example/desk")
        await self.room.enter(peer, nick or name, affiliation=affiliation)
        return peer

    async def ask(self, amount: int = 5) -> str:
        """Juliet has something paid; return the id of the task."""
        juliet = self.peers.get("juliet") or await self.enter("juliet", "none")
        answer = await juliet.iq(
            "set",
            f"<execute xmlns='{FLUUX}#execute' skill='pay' mode='async'>"
            f"<params type='application/json'>{{\"amount\": {amount}}}</params></execute>",
        )
        await self.kit.settled()
        return str(answer.forward()).partition("task='")[2].partition("'")[0]

    def said(self) -> list[tuple[Incoming, str]]:
        """What the agent has said in the room, as an occupant has received it."""
        peer = next(iter(self.peers.values()))
        mine = [one for one in peer.stanzas if one.kind == "message" and one.type == "groupchat"]
        return [(one, body(one)) for one in mine if one.sender == f"{ROOM}/assistant" and body(one)]

    def question(self) -> Incoming:
        """The message that asks the room."""
        return next(one for one, _ in self.said() if one.payload(Confirm) is not None)

    def state(self) -> str:
        """The last line that the agent has said."""
        return self.said()[-1][1].splitlines()[-1]

    async def react(self, name: str, *emoji: str, to: str = "", inside: str = "") -> None:
        """React to the question, by the id that the room has given it."""
        await self.kit.settled()
        id_ = to or stanza_id(self.question())
        reactions = "".join(f"<reaction>{one}</reaction>" for one in emoji)
        await self.room.say(
            self.peers[name],
            "",
            f"<reactions xmlns='urn:xmpp:reactions:0' id='{id_}'>{reactions}</reactions>{inside}",
        )
        await self.kit.settled()


def stanza_id(message: Incoming) -> str:
    return message.forward().partition("<stanza-id")[2].partition(" id='")[2].partition("'")[0]


@asynccontextmanager
async def world(
    tmp_path: Path,
    *,
    model: Script | None = None,
    rooms: Callable[[Xmpp], Rooms] = Rooms,
    agents: Sequence[str] = (),
    **more: Any,
) -> AsyncIterator[World]:
    done.clear()
    settings = rule(**more) | {"agents": [{"name": name} for name in agents]}
    async with service(tmp_path, settings, skills=[pay], model=model) as kit:
        made = World(kit, rooms)
        await kit.restart()  # the room exists now
        await kit.settled()
        yield made


async def test_two_occupants_approve_and_the_message_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, need=2, affiliation="admin") as w:
        await w.enter("alice")
        await w.enter("bob")
        await w.ask()
        text = body(w.question())
        for part in ("For juliet@capulet.example", "amount: 5", UP, DOWN, "2 persons have to"):
            assert part in text, text
        await w.react("alice", UP)
        assert w.state() == "1 of 2: approved by alice@capulet.example."
        assert done == []
        await w.react("bob", UP)
        assert w.state() == "Approved by alice@capulet.example and bob@capulet.example."
        assert done == ["paid 5"]
        first, *corrections = [one for one, _ in w.said()]
        for each in corrections:
            assert each.require(Replace).id == first.id
        # What clients show that know polls.
        poll = first.require(Poll)
        assert [one.emoji for one in poll.options] == [UP, DOWN]
        assert "amount: 5" in (poll.description or "")
        closed = corrections[-1].require(PollClosed)
        assert closed.message_id == first.id
        assert [(one.emoji, one.count) for one in closed.tallies] == [(UP, 2), (DOWN, 0)]


async def ended(w: World, task: str) -> str:
    """The text of the failure of a task, or of its result."""
    found = await w.peers["juliet"].iq("get", f"<task xmlns='{FLUUX}#task' id='{task}'/>")
    return found.forward()


async def test_one_denial_ends_it(tmp_path: Path) -> None:
    async with world(tmp_path, need=2) as w:
        await w.enter("alice")
        await w.enter("bob", "member")
        task = await w.ask()
        await w.react("alice", UP)
        await w.react("bob", DOWN)
        assert w.state() == "Denied by bob@capulet.example."
        assert "<denied" in await ended(w, task)
        await w.react("bob", UP)
        assert done == []


async def test_a_reply_counts_as_a_reaction_does(tmp_path: Path) -> None:
    async with world(tmp_path, need=2) as w:
        await w.enter("alice")
        await w.enter("bob")
        task = await w.ask()
        to = stanza_id(w.question())
        reply = f"<reply xmlns='urn:xmpp:reply:0' id='{to}' to='{ROOM}/assistant'/>"
        await w.room.say(w.peers["alice"], "yes", reply)
        await w.room.say(w.peers["bob"], "Why? And yes, what for", reply)
        await w.room.say(w.peers["bob"], "yes")
        await w.kit.settled()
        assert w.state() == "1 of 2: approved by alice@capulet.example."
        await w.room.say(w.peers["bob"], "no, it is too much", reply)
        await w.kit.settled()
        assert w.state() == "Denied by bob@capulet.example."
        assert "it is too much" in await ended(w, task)


async def test_an_identifier_after_the_name_of_the_agent_is_enough(tmp_path: Path) -> None:
    async with world(tmp_path, need=2) as w:
        alice = await w.enter("alice")
        bob = await w.enter("bob")
        await w.ask()
        confirm = w.question().require(Confirm)
        short = confirm.id[:4]
        how = f"reply yes or no, or write my name and *yes {short}* or *no {short}*"
        assert how in body(w.question())
        for text in ("assistant: yes", f"yes {short}", f"assistant: yes, but {short}", short):
            await w.room.say(alice, text)
        await w.kit.settled()
        assert len(w.said()) == 1
        await w.room.say(alice, f"@Assistant, yes {short}")
        await w.kit.settled()
        assert w.state() == "1 of 2: approved by alice@capulet.example."
        await w.room.say(bob, f"assistant: no, too much {short}")
        await w.kit.settled()
        assert w.state() == "Denied by bob@capulet.example."


async def test_the_requester_s_own_vote_is_not_counted_and_is_told_so(tmp_path: Path) -> None:
    async with world(tmp_path, not_requester=True) as w:
        await w.enter("juliet")
        await w.enter("alice")
        await w.ask()
        assert "not counting the one who has requested it" in body(w.question())
        for emoji in (UP, DOWN, UP):
            await w.react("juliet", emoji)
        told = [text for _, text in w.said() if "somebody else has to decide" in text]
        assert told == [
            "juliet: you have requested this yourself, so somebody else has to decide it."
        ]
        assert done == []
        await w.react("alice", UP)
        assert done == ["paid 5"]


async def test_only_those_vote_who_are_named_by_affiliation_and_hat(tmp_path: Path) -> None:
    async with world(tmp_path, affiliation="admin", hat="urn:example:oncall") as w:
        (membership,) = w.kit.kernel.rooms
        membership.features |= {HATS}
        membership.view.supports(membership.features)
        hats = (
            "<hats xmlns='urn:xmpp:hats:0'><hat uri='urn:example:oncall' title='On call'/></hats>"
        )
        for name, affiliation in (("alice", "admin"), ("bob", "member"), ("carol", "owner")):
            await w.enter(name, affiliation)
        w.room.occupants["bob"].hats = hats
        w.room.set_role("bob", "participant")
        await w.ask()
        assert "admins and owners with the hat urn:example:oncall" in body(w.question())
        for name in ("alice", "bob", "carol"):
            await w.react(name, UP)
        assert done == []
        w.room.occupants["carol"].hats = hats
        w.room.set_role("carol", "moderator")
        await w.react("carol", UP)
        assert done == ["paid 5"]


async def test_each_account_has_one_vote_and_can_change_it(tmp_path: Path) -> None:
    async with world(tmp_path, need=2) as w:
        alice = await w.enter("alice")
        second = w.kit.peer("alice@capulet.example/phone")
        await w.room.enter(second, "alice, too")
        await w.enter("bob")
        w.peers["second"] = second
        await w.ask()
        await w.react("alice", UP)
        await w.react("second", UP)
        await w.react("alice", UP)
        assert w.state() == "1 of 2: approved by alice@capulet.example."
        await w.react("second")
        assert w.state() == "0 of 2 approvals."
        await w.react("bob", UP)
        assert w.state() == "1 of 2: approved by bob@capulet.example."
        assert done == []
        await w.room.leave(alice)
        await w.react("second", UP)
        assert done == ["paid 5"]


async def test_nothing_but_a_vote_of_an_occupant_who_is_there_counts(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.enter("alice")
        mallory = await w.enter("mallory", "none")
        await w.ask()
        to = stanza_id(w.question())
        item = (
            "<x xmlns='http://jabber.org/protocol/muc#user'>"
            "<item affiliation='owner' role='moderator' jid='alice@capulet.example/desk'/></x>"
        )
        known = (
            f"<occupant-id xmlns='urn:xmpp:occupant-id:0' id='{'id-of-alice@capulet.example'}'/>"
        )
        late = "<delay xmlns='urn:xmpp:delay' stamp='2020-01-01T00:00:00Z'/>"
        for inside in (item, known, late):
            await w.react("mallory", UP, inside=inside)
        await w.room.whisper(mallory, "assistant", "yes")
        private = (
            f"<message type='chat' to='{ROOM}/assistant'><reactions xmlns='urn:xmpp:reactions:0'"
            f" id='{to}'><reaction>{UP}</reaction></reactions>{item}</message>"
        )
        await mallory.send(private)
        # The nickname of one who has left is worth nothing.
        await w.room.leave(w.peers.pop("alice"))
        other = w.kit.peer("mallory@capulet.example/phone")
        await w.room.enter(other, "alice")
        w.peers["other"] = other
        await w.react("other", UP)
        # Approvals of those who are entitled count only for this question.
        await w.enter("bob")
        elsewhere = await w.room.say(mallory, "Pizza?")
        await w.react("bob", UP, to=elsewhere)
        await w.react("bob", DOWN, inside=late)
        assert done == []
        await w.react("bob", UP)
        assert done == ["paid 5"]


async def test_an_id_that_another_message_has_too_names_no_question(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.enter("alice")
        mallory = await w.enter("mallory", "none")
        await w.ask()
        ours = w.question().id or ""
        await w.room.say(mallory, "Pizza?", id_=ours)
        await w.kit.settled()
        await w.react("alice", UP, to=ours)
        assert done == []
        await w.react("alice", UP)
        assert done == ["paid 5"]


async def test_the_id_of_the_message_names_the_question_as_well(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.enter("alice")
        await w.ask()
        await w.react("alice", UP, to=w.question().id or "")
        assert done == ["paid 5"]


async def test_an_agent_does_not_decide(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.peers["bot"] = w.kit.peer("bot@capulet.example/x", features=(FLUUX,))
        await w.room.enter(w.peers["bot"], "bot", affiliation="owner")
        await w.ask()
        await w.react("bot", UP)
        await w.kit.advance(10)
        assert done == []


async def test_accounts_and_the_room_are_one_tally(tmp_path: Path) -> None:
    approvers = [f"room:{ROOM}", "alice@capulet.example", "bob@capulet.example"]
    async with world(tmp_path, need=2, approvers=approvers) as w:
        alice = w.kit.peer("alice@capulet.example/desk")
        await w.enter("carol")
        task = await w.ask()
        asked = await alice.receive(lambda one: one.payload(Confirm) is not None)
        assert "2 persons have to approve." in body(asked)
        reply = f"<reply xmlns='urn:xmpp:reply:0' id='{asked.id}'/>"
        await alice.send(
            f"<message type='chat' to='{asked.sender}' id='a1'><body>yes</body>{reply}</message>"
        )
        assert "One more approval is needed." in await alice.hear("Approved")
        await w.kit.settled()
        assert w.state() == "1 of 2: approved by alice@capulet.example."
        shown = await ended(w, task)
        assert "need='2' given='1'" in shown
        await w.react("carol", UP)
        assert done == ["paid 5"]
        assert w.state() == "Approved by alice@capulet.example and carol@capulet.example."


async def test_two_of_three_accounts_without_a_room(tmp_path: Path) -> None:
    names = [f"{name}@capulet.example" for name in ("alice", "bob", "juliet")]
    async with world(tmp_path, need=2, approvers=names, not_requester=True) as w:
        alice, bob = (w.kit.peer(f"{name}@capulet.example/desk") for name in ("alice", "bob"))
        await w.ask()
        asked = await alice.receive(lambda one: one.payload(Confirm) is not None)
        confirm = asked.require(Confirm)
        assert confirm.hash is not None
        decision = f"<decision xmlns='{FLUUX}#confirm' id='{confirm.id}' value='approve'/>"
        for _ in range(2):
            assert (await alice.iq("set", decision, asked.sender or "")).type == "result"
        own = await w.peers["juliet"].iq("set", decision, asked.sender or "")
        assert "unknown-confirmation" in own.forward(), "the requester was not asked"
        told = await w.peers["juliet"].receive(
            lambda one: (task := one.forward()) != "" and "given='1'" in task
        )
        assert told.type == "headline"
        assert done == []
        asked = await bob.receive(lambda one: one.payload(Confirm) is not None)
        await bob.send(
            f"<message type='chat' to='{asked.sender}'><reactions xmlns='urn:xmpp:reactions:0'"
            f" id='{asked.id}'><reaction>{UP}</reaction></reactions></message>"
        )
        await w.kit.settled()
        assert done == ["paid 5"]


async def test_too_few_approvers_beside_the_requester_refuse_at_once(tmp_path: Path) -> None:
    names = ["juliet@capulet.example", "alice@capulet.example"]
    async with world(tmp_path, need=2, approvers=names, not_requester=True) as w:
        juliet = await w.enter("juliet")
        answer = await juliet.iq(
            "set",
            f"<execute xmlns='{FLUUX}#execute' skill='pay'><param name='amount'>5</param>"
            "</execute>",
        )
        assert "needs 2 approvals, and one person can be asked" in answer.forward()
        assert "confirmation-unavailable" in answer.forward()


async def test_where_accounts_are_hidden_the_named_ones_are_asked(tmp_path: Path) -> None:
    approvers = [f"room:{ROOM}", "alice@capulet.example"]
    async with world(tmp_path, approvers=approvers) as w:
        w.room.shows_accounts = False
        await w.kit.restart()
        await w.enter("juliet", "none")
        alice = w.kit.peer("alice@capulet.example/desk")
        await w.ask()
        assert w.said() == []
        await alice.receive(lambda one: one.payload(Confirm) is not None)
        await w.kit.advance(4)
        await alice.say("yes", "agent.capulet.example")
        await alice.hear("Approved")
        await w.kit.settled()
        assert done == ["paid 5"]


async def test_a_hat_is_demanded_only_where_the_room_gives_hats(tmp_path: Path) -> None:
    async with world(tmp_path, hat="urn:example:oncall") as w:
        task = await w.ask()
        await w.kit.settled()
        assert "it gives its occupants no hats. Demand an affiliation" in await ended(w, task)


@pytest.mark.parametrize(("hidden", "why"), [(True, "non-anonymous"), (False, "I am not there")])
async def test_if_nobody_can_be_asked_the_task_fails_and_says_how_to_correct_it(
    tmp_path: Path, hidden: bool, why: str
) -> None:
    async with world(tmp_path) as w:
        w.room.shows_accounts = not hidden
        await w.kit.restart()
        await w.enter("juliet", "none")
        if not hidden:
            w.room.remove("assistant", 307)
            await w.kit.settled()
        task = await w.ask()
        await w.kit.settled()
        failure = await ended(w, task)
        assert "confirmation-unavailable" in failure
        assert why in failure
        assert "name accounts in approvers" in failure


async def test_the_agent_may_be_a_moderator_of_a_room_that_hides_accounts(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.room.shows_accounts = False
        w.room.affiliations[next(iter(w.room.occupants.values())).jid.bare] = "admin"
        await w.kit.restart()
        await w.enter("alice", nick="Al\u202eice")
        await w.ask()
        await w.react("alice", UP)
        assert w.state() == "Approved by Al\\u202eice.", "the room does not learn the account"
        assert done == ["paid 5"]


async def test_a_kill_between_two_approvals_loses_neither(tmp_path: Path) -> None:
    async with world(tmp_path, need=2) as w:
        await w.enter("alice")
        await w.enter("bob")
        await w.ask()
        await w.react("alice", UP)
        w.room.remove("assistant", 333)  # the server notices that the connection is lost
        await w.kit.restart(kill=True)
        await w.kit.settled()
        assert w.state() == (
            "1 of 2: approved by alice@capulet.example. I was away: please vote again if you have"
            " voted since."
        )
        await w.react("bob", UP)
        assert w.state() == "Approved by alice@capulet.example and bob@capulet.example."
        assert done == ["paid 5"]
        said = len(w.said())
        await w.kit.restart()
        assert len(w.said()) == said


async def test_the_room_sees_that_a_question_has_expired_or_is_withdrawn(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.enter("alice")
        task = await w.ask()
        await w.peers["juliet"].iq("set", f"<cancel xmlns='{FLUUX}#task' id='{task}'/>")
        await w.kit.settled()
        assert w.state() == "Withdrawn: it is not to be decided any more."
        await w.ask()
        await w.kit.jump(90_000)
        assert w.state() == "Expired: I have not done it."
        await w.react("alice", UP)
        assert done == []


async def test_a_question_that_was_open_while_the_agent_was_kicked_is_decided_later(
    tmp_path: Path,
) -> None:
    approvers = [f"room:{ROOM}", "carol@capulet.example"]
    async with world(tmp_path, need=2, approvers=approvers) as w:
        await w.enter("alice")
        carol = w.kit.peer("carol@capulet.example/desk")
        await w.ask()
        await w.react("alice", UP)
        w.room.remove("assistant", 307)
        await w.kit.settled()
        asked = await carol.receive(lambda one: one.payload(Confirm) is not None)
        id_ = asked.require(Confirm).id
        decision = f"<decision xmlns='{FLUUX}#confirm' id='{id_}' value='approve'/>"
        await carol.iq("set", decision, asked.sender or "")
        await w.kit.settled()
        assert done == ["paid 5"]
        await w.kit.restart()
        assert w.state().startswith("Approved by alice")


async def test_who_has_approved_is_in_the_audit_log(tmp_path: Path) -> None:
    async with world(tmp_path, need=2) as w:
        await w.enter("alice")
        await w.enter("bob")
        await w.ask()
        await w.react("alice", UP)
        await w.react("alice")
        await w.react("bob", UP)
        await w.react("alice", UP)
        lines = [one for one in await w.kit.audited() if one.kind == "confirmation"]
        assert [(one.outcome, (one.principal or "").partition("@")[0]) for one in lines] == [
            ("asked", "juliet"),
            ("approved", "alice"),
            ("withdrawn", "alice"),
            ("approved", "bob"),
            ("approved", "alice"),
        ]


async def test_a_room_that_no_rule_names_any_more_is_left(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        assert "assistant" in w.room.occupants
        await w.kit.reload({"agent": {"allowed_domains": ["capulet.example"]}})
        assert "assistant" not in w.room.occupants


async def test_an_agent_that_is_muted_asks_people_and_the_room_when_it_has_voice(
    tmp_path: Path,
) -> None:
    approvers = [f"room:{ROOM}", "carol@capulet.example"]
    async with world(tmp_path, approvers=approvers) as w:
        await w.enter("alice")
        carol = w.kit.peer("carol@capulet.example/desk")
        w.room.set_role("assistant", "visitor")
        await w.ask()
        assert w.said() == []
        await carol.receive(lambda one: one.payload(Confirm) is not None)
        w.room.set_role("assistant", "participant")
        await w.kit.settled()
        await w.react("alice", UP)
        assert done == ["paid 5"]


class Listing(Rooms):
    """A service that tells everybody who its admins are, and nobody who its members are."""

    def _iq(self, stanza: Incoming, room: Room | None, to: JID, sender: JID) -> None:
        asked = stanza.payload(AdminQuery) if stanza.sole_child == AdminQuery.xml.tag else None
        if room is None or asked is None:
            super()._iq(stanza, room, to, sender)
            return
        (wanted,) = [each.affiliation for each in asked.items]
        if wanted == "member":
            raise StanzaError("forbidden")
        found = [AdminItem(jid=jid) for jid, has in room.affiliations.items() if has == wanted]
        result = AdminQuery(items=tuple(found))
        self.say(
            IQ(type="result", id=stanza.id or "", to=sender, from_=to, payload=result).encode()
        )


async def test_those_on_the_lists_of_a_room_that_hides_accounts_are_asked(tmp_path: Path) -> None:
    async with world(tmp_path, rooms=Listing, not_requester=True) as w:
        w.room.shows_accounts = False
        for name in ("alice", "juliet", "peer@elsewhere.example"):
            jid = name if "@" in name else f"{name}@capulet.example"
            w.room.affiliations[JID.parse(jid)] = "admin"
        await w.kit.restart()
        alice = w.kit.peer("alice@capulet.example/desk")
        await w.ask()
        asked = await alice.receive(lambda one: one.payload(Confirm) is not None)
        id_ = asked.require(Confirm).id
        decision = f"<decision xmlns='{FLUUX}#confirm' id='{id_}' value='approve'/>"
        own = await w.peers["juliet"].iq("set", decision, asked.sender or "")
        assert "unknown-confirmation" in own.forward(), "the requester is not asked"
        await alice.iq("set", decision, asked.sender or "")
        await w.kit.settled()
        assert done == ["paid 5"]


async def test_the_agent_that_was_asked_enters_the_room_and_asks(tmp_path: Path) -> None:
    async with world(tmp_path, agents=["clerk"]) as w:
        await w.enter("alice")
        juliet = await w.enter("juliet", "none")
        clerk = "clerk@agent.capulet.example"
        wanted = f"<execute xmlns='{FLUUX}#execute' skill='pay' mode='async'>"
        params = "<params type='application/json'>{\"amount\": 3}</params></execute>"
        await juliet.iq("set", wanted + params, clerk)
        await w.kit.settled()
        asked = next(
            one for one in w.peers["alice"].stanzas if one.sender == f"{ROOM}/clerk" and body(one)
        )
        await w.react("alice", UP, to=stanza_id(asked))
        assert done == ["paid 3"]


async def test_what_a_model_asks_for_is_decided_by_the_room(tmp_path: Path) -> None:
    model = Script(call("pay", amount=7), "It is paid.")
    async with world(tmp_path, model=model, not_requester=True) as w:
        await w.enter("alice")
        juliet = await w.enter("juliet", "owner")
        await juliet.say("Please pay 7.")
        await w.kit.settled()
        assert "For juliet@capulet.example" in body(w.question())
        await w.react("juliet", UP)
        assert done == []
        await w.react("alice", UP)
        assert await juliet.hear("paid") == "It is paid."
        assert done == ["paid 7"]


async def test_a_room_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.enter("alice")
        w.room.remove("assistant", 332)
        task = await w.ask()
        await w.kit.settled()
        assert "state='input-required'" in await ended(w, task)
        await w.kit.advance(60)
        await w.react("alice", UP)
        assert done == ["paid 5"]


@pytest.mark.parametrize("server", ["prosody", "ejabberd"])
async def test_a_room_that_cannot_be_reached_hears_later_what_became_of_a_question(
    tmp_path: Path, server: Server
) -> None:
    approvers = [f"room:{ROOM}", "bob@capulet.example"]
    make = partial(Rooms, server=server)
    async with world(tmp_path, need=2, approvers=approvers, rooms=make) as w:
        bob = await w.enter("bob")
        task = await w.ask()
        asked = w.question().payload(Confirm)
        assert asked is not None
        w.rooms.connect(is_connected=False)
        decision = f"<decision xmlns='{FLUUX}#confirm' id='{asked.id}' value='deny'/>"
        await bob.iq("set", decision)
        await w.kit.settled()
        assert "state='failed'" in await ended(w, task)
        w.rooms.connect(is_connected=True)
        await w.kit.advance(120)
        await w.kit.settled()
        assert w.state() == "Denied by bob@capulet.example."
        assert len(w.said()) == 2, "it hears it once"


async def test_a_room_hears_what_became_of_a_question_that_was_sent_just_before_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    approvers = [f"room:{ROOM}", "bob@capulet.example"]
    async with world(tmp_path, need=2, approvers=approvers) as w:
        bob, juliet = await w.enter("bob"), await w.enter("juliet", "none")
        killed = anyio.Event()

        def deliver(xml: str) -> None:
            Peer.deliver(bob, xml)
            if "groupchat" in xml and "<confirm" in xml and not killed.is_set():
                killed.set()
                w.kit.strike()

        monkeypatch.setattr(bob, "deliver", deliver)
        request = f"<execute xmlns='{FLUUX}#execute' skill='pay' mode='async'>"
        request += "<params type='application/json'>{\"amount\": 5}</params></execute>"
        await juliet.send(f"<iq to='{w.kit.agent}' type='set' id='pay'>{request}</iq>")
        await killed.wait()
        await w.kit.buried()
        w.rooms.connect(is_connected=False)
        await w.kit.start()
        asked = w.question().payload(Confirm)
        assert asked is not None
        decision = f"<decision xmlns='{FLUUX}#confirm' id='{asked.id}' value='deny'/>"
        assert (await bob.iq("set", decision)).type == "result"
        w.rooms.connect(is_connected=True)
        await w.kit.advance(120)
        await w.kit.settled()
        assert w.state() == "Denied by bob@capulet.example."


async def test_whoever_has_asked_in_chat_hears_how_many_approvals_are_needed(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, need=2) as w:
        await w.enter("alice")
        await w.enter("bob")
        juliet = w.kit.peer("juliet@capulet.example/desk")
        await juliet.say("/run pay amount=5")
        assert await juliet.hear("waiting for") == "pay is waiting for 2 approvals."
        await w.react("alice", UP)
        said = await juliet.hear("waiting for")
        assert said == "pay is waiting for 2 approvals. One more approval is needed."
        await w.react("bob", UP)
        assert "paid 5" in await juliet.hear("paid")
