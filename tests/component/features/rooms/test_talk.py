"""An agent talks in a room: whom it answers, with whose rights, and what it knows."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from component.agent.requests import TurnRequest
from component.kernel.rooms.membership import Membership
from component.skills import skill
from tests.component.features.rooms.lobby import NICK, ROOM, Lobby, lobby, spoken
from tests.kit import NoAnswer, Peer, Script, anyio_backend, call
from xep.message_replies import Reply
from xep.reactions import Reactions
from xep.stanza import Incoming
from xep.stanza_ids import StanzaId

__all__ = ["anyio_backend"]
FLUUX = "urn:fluux:agent:0"
pytestmark = pytest.mark.anyio

DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2020-01-01T00:00:00Z'/>"


async def test_it_answers_who_mentions_it_and_hears_the_others_for_free(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("It is warm, Romeo.")) as it:
        await it.room.say(it.juliet, "What a night.")
        await it.room.say(it.juliet, "Is it warm in Mantua?")
        await it.kit.settled()
        assert it.model.requests == []
        await it.room.say(it.romeo, f"{NICK}: what do you think?")
        answer = await it.juliet.receive(lambda each: "warm, Romeo" in (each.text_of("body") or ""))
        assert answer.sender == f"{ROOM}/{NICK}"
        assert answer.type == "groupchat"
        reply = answer.payload(Reply)
        assert reply is not None
        assert reply.to == f"{ROOM}/Romeo"
        (request,) = it.model.requests
        assert "Is it warm in Mantua?" in it.model.asked
        assert "what do you think?" in request.messages[-1].text
        assert f"{NICK}: what" not in request.messages[-1].text


async def test_what_was_written_before_it_came_is_context_and_not_answered(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Yes.")) as it:
        await it.room.say(it.juliet, f"{NICK}: are you there?")
        await it.juliet.hear("Yes.")
        await it.kit.advance(1)  # the server has confirmed the answer
        await it.kit.stop()
        await it.room.say(it.juliet, f"{NICK}: and now?")
        await it.kit.start()
        await it.again()
        assert it.said() == ["Yes."]
        it.model.add("I was away.")
        await it.room.say(it.romeo, f"@{NICK} what did Juliet want?")
        await it.juliet.hear("I was away.")
        assert "and now?" in it.model.requests[-1].messages[-1].text


@pytest.mark.parametrize(
    "inside",
    [
        DELAY,
        "<x xmlns='jabber:x:delay' stamp='20200101T00:00:00'/>",
        "<delay xmlns='urn:xmpp:delay'/>",
    ],
)
async def test_a_delayed_message_is_history_whoever_says_so(tmp_path: Path, inside: str) -> None:
    async with lobby(tmp_path, Script()) as it:
        await it.room.say(it.juliet, f"{NICK}: hello", inside)
        await it.kit.advance(5)
        assert it.model.requests == []


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("", "<subject>FluuxBot</subject>"),
        ("", "<composing xmlns='http://jabber.org/protocol/chatstates'/>"),
        ("", "<displayed xmlns='urn:xmpp:chat-markers:0' id='x'/>"),
        ("", "<reactions xmlns='urn:xmpp:reactions:0' id='x'><reaction>x</reaction></reactions>"),
        (f"{NICK}: a task", "<task xmlns='urn:fluux:agent:0' id='x' state='completed'/>"),
    ],
)
async def test_what_says_nothing_is_not_answered(tmp_path: Path, text: str, inside: str) -> None:
    async with lobby(tmp_path, Script()) as it:
        await it.room.say(it.juliet, text, inside)
        await it.kit.advance(5)
        assert it.model.requests == []


async def test_it_never_answers_itself(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(f"I am {NICK}."), room='answer = "always"') as it:
        await it.room.say(it.juliet, "Who are you?")
        await it.juliet.hear(f"I am {NICK}.")
        await it.kit.advance(60)
        assert len(it.model.requests) == 1


async def test_a_reply_to_it_is_for_it_and_one_to_another_is_not(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("The nightingale.", "Really.")) as it:
        await it.room.say(it.juliet, f"{NICK}: which bird was it?")
        answer = await it.juliet.receive(lambda each: "nightingale" in (each.text_of("body") or ""))
        stanza_id = room_id(answer)
        await it.room.say(it.romeo, "No.", f"<reply xmlns='urn:xmpp:reply:0' id='{stanza_id}'/>")
        assert await it.juliet.hear("Really.")
        await it.room.say(
            it.romeo, "No.", f"<reply xmlns='urn:xmpp:reply:0' id='other' to='{ROOM}/Juliet'/>"
        )
        await it.kit.advance(5)
        assert len(it.model.requests) == 2


@pytest.mark.parametrize(
    ("answer", "answered"),
    [
        ("mention", {"mention", "reply"}),
        ("reply", {"reply"}),
        ("always", {"mention", "reply", "nothing"}),
        ("never", set()),
    ],
)
async def test_each_mode_answers_what_it_says(
    tmp_path: Path, answer: str, answered: set[str]
) -> None:
    async with lobby(tmp_path, Script(otherwise="Well."), room=f'answer = "{answer}"') as it:
        to_it = f"<reply xmlns='urn:xmpp:reply:0' id='any' to='{ROOM}/{NICK}'/>"
        for name, text, inside in (
            ("mention", f"{NICK}: hello", ""),
            ("reply", "hello", to_it),
            ("nothing", "hello", ""),
        ):
            before = len(it.model.requests)
            await it.room.say(it.juliet, text, inside)
            await it.kit.advance(5)
            assert (len(it.model.requests) > before) == (name in answered), name


async def asked_by(it: Lobby, *messages: tuple[Peer, str, str]) -> list[TurnRequest]:
    """Return the requests that these messages become."""
    assert it.kit.kernel.agents is not None
    conversations, found = it.kit.kernel.agents.conversations, list[TurnRequest]()
    received = conversations.received

    async def note(request: TurnRequest, *more: Any) -> None:
        found.append(request)
        await received(request, *more)

    conversations.received = note  # type: ignore[method-assign]
    for peer, text, inside in messages:
        await it.room.say(peer, text, inside)
        await it.kit.advance(5)
    return found


async def shown(it: Lobby) -> None:
    """Have the room show the accounts of both."""
    it.room.shows_accounts = True
    for peer, nick in ((it.juliet, "Juliet"), (it.romeo, "Romeo")):
        await it.room.leave(peer)
        await it.room.enter(peer, nick)


async def test_a_known_account_has_its_own_rights_and_others_have_those_of_the_room(
    tmp_path: Path,
) -> None:
    forged = (
        "<x xmlns='http://jabber.org/protocol/muc#user'>"
        "<item jid='juliet@capulet.example/x' affiliation='owner'/></x>"
        "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='id-of-juliet@capulet.example'/>"
    )
    async with lobby(tmp_path, Script(otherwise="Well.")) as it:
        await shown(it)
        hello = f"{NICK}: hello"
        juliet, romeo = await asked_by(it, (it.juliet, hello, ""), (it.romeo, hello, forged))
        assert juliet.room is not None
        assert romeo.room is not None
        assert str(juliet.principal) == "juliet@capulet.example" == str(juliet.room.account)
        assert (juliet.room.skills, juliet.room.read_only) == (("*",), False)
        assert str(romeo.principal) == ROOM
        assert romeo.room.account is None
        assert romeo.room.read_only
        assert romeo.room.occupant == "id:id-of-romeo@montague.example"
        assert str(romeo.conversation.peer) == ROOM


async def test_occupants_are_told_apart_where_the_room_gives_no_ids(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(otherwise="Well."), server="ejabberd") as it:
        forged = "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='x'/>"
        hello = f"{NICK}: hello"
        one, two, three = await asked_by(
            it, (it.juliet, hello, forged), (it.romeo, hello, forged), (it.juliet, hello, "")
        )
        assert one.room is not None
        assert two.room is not None
        assert three.room is not None
        assert one.room.occupant == three.room.occupant != two.room.occupant


async def test_the_room_of_the_settings_can_name_a_principal_and_skills(tmp_path: Path) -> None:
    room = 'principal = "guest@capulet.example"\nskills = ["weather"]\nread_only = false'
    async with lobby(tmp_path, Script(otherwise="Well."), room=room) as it:
        (asked,) = await asked_by(it, (it.romeo, f"{NICK}: hello", ""))
        assert asked.room is not None
        assert str(asked.principal) == "guest@capulet.example"
        assert (asked.room.skills, asked.room.read_only) == (("weather",), False)


@pytest.mark.parametrize(
    ("accounts", "principals"),
    [
        ("server", ["juliet@capulet.example", ROOM]),
        ("all", ["juliet@capulet.example", "romeo@montague.example"]),
        ("none", [ROOM, ROOM]),
    ],
)
async def test_a_room_vouches_only_for_accounts_that_it_is_trusted_with(
    tmp_path: Path, accounts: str, principals: list[str]
) -> None:
    more = '[agent]\nallowed_domains = ["capulet.example", "montague.example"]'
    room = f'accounts = "{accounts}"'
    async with lobby(tmp_path, Script(otherwise="Well."), more, room=room) as it:
        await shown(it)
        hello = f"{NICK}: hello"
        asked = await asked_by(it, (it.juliet, hello, ""), (it.romeo, hello, ""))
        assert [str(each.principal) for each in asked] == principals


@skill(idempotent=True, destructive=False, open_world=False, read_only=True)
def tide(place: str) -> str:
    """Say when the tide is high."""
    return f"At noon in {place}."


@skill(idempotent=True, destructive=True, open_world=False)
def flood(place: str) -> str:
    """Flood a place."""
    return f"{place} is under water."


async def test_occupants_of_unknown_accounts_use_the_skills_of_the_room(tmp_path: Path) -> None:
    script = Script(call("tide", place="Mantua"), "At noon.", otherwise="Well.")
    more = '[[policy.rules]]\nskills = ["watch_*"]\nallowed_jids = ["juliet@capulet.example"]'
    async with lobby(tmp_path, script, more, skills=(tide, flood)) as it:
        await it.room.say(it.romeo, f"{NICK}: when is the tide high in Mantua?")
        await it.juliet.hear("At noon.")
        assert "At noon in Mantua." in it.model.asked
        offered = {each.name for each in it.model.requests[-1].tools}
        assert "tide" in offered
        assert not offered & {"flood", "memory_store", "watch_list"}
        await shown(it)
        await it.room.say(it.juliet, f"{NICK}: hello")
        await it.juliet.hear("Well.")
        assert {"tide", "flood", "watch_list"} <= {
            each.name for each in it.model.requests[-1].tools
        }


async def test_an_occupant_has_no_rights_outside_of_the_room(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(), skills=(tide,)) as it:
        answer = await it.romeo.iq(
            "get", "<query xmlns='urn:fluux:agent:0#skills'/>", f"{ROOM}/{NICK}"
        )
        assert answer.type == "error"


async def test_stop_of_anybody_stops_it_at_once(tmp_path: Path) -> None:
    for said in ("stop", "Stop!", f"@{NICK} stop", f"{NICK}: /stop", "/stop"):
        asked = NoAnswer()
        async with lobby(tmp_path / said.replace("/", "-"), Script(asked)) as it:
            await it.room.say(it.juliet, f"{NICK}: count to a million")
            await asked.reached.wait()
            await it.room.say(it.romeo, said)
            assert await it.juliet.hear("Stopped.", within_s=5)


@pytest.mark.parametrize("said", ["stop", f"{NICK}: stop"])
async def test_stop_counts_for_what_came_before_from_somebody_who_may_be_a_program(
    tmp_path: Path, said: str
) -> None:
    async with lobby(tmp_path, Script(otherwise="Well.")) as it:
        it.kit.xmpp.delay = lambda: 1.0  # between the servers of the agent and of Romeo
        await it.room.say(it.romeo, f"{NICK}: count to a million")
        await it.kit.advance(1.5)  # Romeo's client is being asked what it is
        await it.room.say(it.juliet, said)
        await it.kit.advance(60)
        assert it.said() == ["Stopped."]
        await it.room.say(it.romeo, f"{NICK}: hello")
        await it.kit.advance(60)
        assert it.said() == ["Stopped.", "Well."]


async def test_a_request_survives_a_kill_and_is_answered_once_in_the_room(tmp_path: Path) -> None:
    asked = NoAnswer()
    async with lobby(tmp_path, Script(asked, otherwise="The nightingale.")) as it:
        await it.room.say(it.juliet, f"{NICK}: which bird was it?")
        await asked.reached.wait()
        await it.kit.kill()
        it.room.remove(NICK, 333)
        await it.kit.start()
        await it.again()
        assert it.said() == ["The nightingale."]


async def test_what_was_stopped_does_not_continue_after_a_kill(tmp_path: Path) -> None:
    asked = NoAnswer()
    async with lobby(tmp_path, Script(asked, otherwise="The nightingale.")) as it:
        await it.room.say(it.juliet, f"{NICK}: which bird was it?")
        await asked.reached.wait()
        await it.room.say(it.romeo, "stop")
        await it.juliet.hear("Stopped.")
        await it.kit.kill()
        it.room.remove(NICK, 333)
        await it.kit.start()
        await it.again()
        assert it.said() == ["Stopped."]
        assert len(it.model.requests) == 1


async def test_stop_to_somebody_else_is_not_answered(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script()) as it:
        await it.room.say(it.romeo, "stop")
        await it.kit.advance(5)
        assert it.said() == []
        await it.room.say(it.romeo, f"{NICK}: stop")
        await it.juliet.hear("nothing to stop")


async def test_without_voice_it_is_silent_until_it_has_voice_again(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("I am back.")) as it:
        it.room.set_role(NICK, "visitor")
        await it.room.say(it.juliet, f"{NICK}: hello")
        await it.room.say(it.juliet, f"{NICK} /help")
        await it.kit.advance(10)
        it.room.set_role(NICK, "participant")
        await it.kit.advance(10)
        assert it.said() == []
        assert it.model.requests == []
        await it.room.say(it.juliet, f"{NICK}: and now?")
        assert await it.juliet.hear("I am back.")
        assert "hello" in it.model.asked


async def test_a_refused_message_makes_it_silent_until_its_role_changes(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(otherwise="Well.")) as it:
        it.room.occupants[NICK].role = "visitor"  # the room has not said so yet
        await it.room.say(it.juliet, f"{NICK}: hello")
        await it.kit.advance(5)
        assert len(it.model.requests) == 1
        await it.room.say(it.juliet, f"{NICK}: hello again")
        await it.kit.advance(5)
        assert len(it.model.requests) == 1
        it.room.set_role(NICK, "moderator")
        await it.room.say(it.juliet, f"{NICK}: hello")
        assert await it.juliet.hear("Well.")


async def test_after_a_loss_that_nobody_has_told_it_comes_back(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(otherwise="Well.")) as it:
        del it.room.occupants[NICK]
        it.rooms.say(
            f"<message type='error' from='{ROOM}' to='assistant@agent.capulet.example/rooms'>"
            "<error type='modify'><not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
            "</error></message>"
        )
        await it.kit.advance(10)
        assert NICK in it.room.occupants


async def test_it_acknowledges_by_a_reaction_if_it_is_asked_to(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Done."), room='acknowledge = "👀"') as it:
        await it.room.say(it.juliet, f"{NICK}: do it")
        await it.juliet.hear("Done.")
        found = [each.payload(Reactions) for each in it.juliet.stanzas if each.kind == "message"]
        (reaction,) = [each for each in found if each is not None]
        assert reaction.emoji == ("👀",)


async def test_a_corrected_message_is_answered_as_it_is_now(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("It is warm in Venice.")) as it:
        id_ = await it.room.say(it.juliet, "FluxBot: is it warm in Verona?")
        await it.kit.advance(2)
        assert it.model.requests == []
        replace = f"<replace xmlns='urn:xmpp:message-correct:0' id='{id_}'/>"
        await it.room.say(it.juliet, f"{NICK}: is it warm in Venice?", replace)
        assert await it.juliet.hear("It is warm in Venice")
        assert "Verona" not in it.model.asked


@pytest.mark.parametrize("retracts", [True, False])
async def test_what_changes_while_its_client_is_asked_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retracts: bool
) -> None:
    answered = anyio.Event()

    async def ask(*_: object) -> bool:
        await answered.wait()
        return False

    monkeypatch.setattr(Membership, "ask_is_agent", ask)
    async with lobby(tmp_path, Script("It is warm in Venice.")) as it:
        id_ = await it.room.say(it.juliet, f"{NICK}: is it warm in Verona?")
        if retracts:
            heard = await it.romeo.receive(lambda each: "Verona" in (each.text_of("body") or ""))
            retract = f"<retract xmlns='urn:xmpp:message-retract:1' id='{room_id(heard)}'/>"
            await it.room.say(it.juliet, "", retract)
        else:
            replace = f"<replace xmlns='urn:xmpp:message-correct:0' id='{id_}'/>"
            await it.room.say(it.juliet, f"{NICK}: is it warm in Venice?", replace)
        await it.kit.settled()
        answered.set()
        await it.kit.advance(5)
        assert it.said() == ([] if retracts else ["It is warm in Venice."])
        if not retracts:
            assert "Verona" not in it.model.asked


async def test_a_correction_under_another_name_counts_for_nothing(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Well.")) as it:
        id_ = await it.room.say(it.juliet, "I am in Verona.")
        replace = f"<replace xmlns='urn:xmpp:message-correct:0' id='{id_}'/>"
        await it.room.say(it.romeo, "I am in Mantua.", replace)
        await it.room.say(it.romeo, f"{NICK}: where is she?")
        await it.juliet.hear("Well.")
        assert "I am in Verona." in it.model.asked


async def test_what_is_retracted_or_moderated_is_not_shown_to_a_model(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script("Well.")) as it:
        await it.room.say(it.juliet, "My secret is a bottle.")
        first = await it.romeo.receive(lambda each: "bottle" in (each.text_of("body") or ""))
        await it.room.say(it.romeo, "An insult.")
        second = await it.juliet.receive(lambda each: "insult" in (each.text_of("body") or ""))
        retract = f"<retract xmlns='urn:xmpp:message-retract:1' id='{room_id(first)}'/>"
        await it.room.say(it.juliet, "This person retracted a message.", retract)
        it.room.moderate(room_id(second))
        await it.room.say(it.juliet, f"{NICK}: what has happened?")
        await it.juliet.hear("Well.")
        assert "bottle" not in it.model.asked
        assert "insult" not in it.model.asked


def room_id(stanza: Incoming) -> str:
    """Return the id that the room has given a message."""
    (found,) = stanza.payloads(StanzaId)
    return found.id


async def test_of_two_agents_the_one_that_is_addressed_answers(tmp_path: Path) -> None:
    more = '[[agents]]\nname = "clerk"\n'
    room = (
        f'answer = "always"\n[[rooms]]\njid = "{ROOM}"\nnick = "Clerk"\nagent = "clerk"\n'
        'answer = "always"'
    )
    async with lobby(tmp_path, Script(otherwise="Yes?"), more, room=room) as it:
        assert "Clerk" in it.room.occupants
        for text, who in (
            ("Clerk: hello", "Clerk"),
            (f"{NICK}: hello", NICK),
            ("hello all", NICK),
            ("hello again", NICK),
        ):
            before = len(spoken(it.juliet))
            await it.room.say(it.juliet, text)
            await it.kit.advance(20)
            assert [nick for nick, _ in spoken(it.juliet)[before + 1 :]] == [who], text


async def test_two_agents_do_not_talk_with_each_other_for_ever(tmp_path: Path) -> None:
    more = '[[agents]]\nname = "clerk"\n'
    room = (
        'answer = "always"\nagents = true\nanswers_per_occupant = 1000\nanswers_per_minute = 1000\n'
        f'[[rooms]]\njid = "{ROOM}"\nnick = "Clerk"\nagent = "clerk"\nanswer = "always"\n'
        "agents = true\nanswers_per_occupant = 1000\nanswers_per_minute = 1000"
    )
    script = Script(otherwise=lambda _request: f"{NICK} and Clerk, what do you think?")
    async with lobby(tmp_path, script, more, room=room) as it:
        await it.room.say(it.juliet, "hello all")
        await it.kit.advance(600)
        said = [nick for nick, _ in spoken(it.juliet) if nick != "Juliet"]
        assert 1 <= len(said) <= 1 + 2 + 2
        await it.room.say(it.juliet, "hello again")
        await it.kit.advance(600)
        assert len(spoken(it.juliet)) > len(said) + 2


@pytest.mark.parametrize("asks_first", [True, False])
async def test_a_program_that_enters_again_is_not_a_person(
    tmp_path: Path, asks_first: bool
) -> None:
    script = Script(otherwise="Well.")
    async with lobby(tmp_path, script, room="agents = true") as it:
        parrot = it.kit.peer("parrot@capulet.example/x", features=(FLUUX,))
        for _ in range(5):
            await it.room.enter(parrot, "Parrot")
            if not asks_first:
                await it.room.say(parrot, "Nobody answers this.")
            await it.room.say(parrot, f"{NICK}: hello")
            await it.kit.advance(60)
            await it.room.leave(parrot)
        assert it.said() == ["Well."] * 2
        await it.room.enter(parrot, "Parrot")
        await it.room.say(it.juliet, "Poor bird.")
        await it.room.say(parrot, f"{NICK}: hello")
        await it.kit.advance(60)
        assert len(it.said()) == 3


async def test_a_program_is_known_before_its_next_message(tmp_path: Path) -> None:
    async with lobby(tmp_path, Script(otherwise="Well.")) as it:
        parrot = it.kit.peer("parrot@capulet.example/x", features=(FLUUX,))
        await it.room.enter(parrot, "Parrot")
        for _ in range(3):
            await it.room.say(parrot, f"{NICK}: hello")
        await it.kit.advance(60)
        assert it.said() == []


async def test_without_a_model_it_says_so_once_an_hour(tmp_path: Path) -> None:
    async with lobby(tmp_path, None) as it:
        for _ in range(3):
            await it.room.say(it.juliet, f"{NICK}: hello")
            await it.kit.advance(60)
        assert len(it.said()) == 1
        assert "no" in it.said()[0] or "can't talk" in it.said()[0]
        await it.kit.jump(3600)
        await it.room.say(it.juliet, f"{NICK}: hello")
        await it.kit.advance(60)
        assert len(it.said()) == 2
