"""What several people of a room decide: somebody asks for it, and people vote in every way.

The council decides with two approvals of its members; the nurse is asked in her own chat as well,
and who asks has no vote.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, Final, Literal
from xml.etree import ElementTree as ET

import anyio
import msgspec

from component.skills import Context, Skill, skill
from tests.simulation.area import Area
from tests.simulation.areas.rooms import Rooms
from tests.simulation.areas.vote_rules import MEMBERS, Grants
from tests.simulation.life import CALLERS, PEOPLE, REACTIONS, Action, Reaction
from tests.simulation.people import label_in
from tests.simulation.room_service import COUNCIL
from tests.simulation.rules import CONFIRM
from xep.jid import JID

_UP: Final = "\N{THUMBS UP SIGN}"
_DOWN: Final = "\N{THUMBS DOWN SIGN}"

Vote = Literal["up", "down", "back", "yes", "no", "named", "named no", "plain", "private", "forged"]
"""Reactions, replies and named questions, and what must not count: a word without a reference, a
private message, and a message that claims to be of an owner.
"""


class Ballot(msgspec.Struct, frozen=True):
    """A vote of somebody, so many seconds after the question or the vote before."""

    who: str
    how: Vote
    after: float


class Grant(Action, frozen=True, kw_only=True):
    """Somebody asks for what the council decides; the process is killed after so many votes."""

    who: str
    ballots: tuple[Ballot, ...]
    kill_after: int | None = None
    reaction: Reaction = "ignore"


def _grant(chance: Random, at: float, number: int) -> Grant:
    return Grant(
        at=at,
        number=number,
        who=chance.choice((*CALLERS, *PEOPLE)),
        ballots=_ballots(chance),
        kill_after=chance.choice((None, None, 0, 1, 1, 2)),
        reaction=chance.choice(REACTIONS),
    )


def _ballots(chance: Random) -> tuple[Ballot, ...]:
    ways: tuple[Vote, ...] = (
        *("up", "up", "up", "up", "yes", "yes", "named", "named", "back", "down"),
        *("no", "named no", "plain", "private", "forged"),
    )
    waits = (0.0, 0.0, 1.0, 60.0, 60.0, 3600.0, 90_000.0)
    return tuple(
        Ballot(chance.choice(PEOPLE), chance.choice(ways), chance.choice(waits) * chance.random())
        for _ in range(chance.randint(1, 6))
    )


class Votes(Area):
    """What the council decides."""

    draws: ClassVar = {_grant: 4}
    actions = (Grant,)
    rules = (Grants,)
    settings: ClassVar = {
        "policy": {
            "rules": [
                {
                    "skills": ["grant"],
                    "confirm": "always",
                    "approvers": [f"room:{COUNCIL}", "nurse@capulet.example"],
                    "affiliation": "member",
                    "need": 2,
                    "not_requester": True,
                }
            ]
        }
    }

    def skills(self) -> Sequence[Skill]:
        """Return the skill that the council allows."""
        outside = self.world.outside

        @skill(question="Grant {label}?")
        async def grant(label: str, context: Context) -> str:
            """Grant something, which cannot be undone."""
            await outside.do(label, "granted", context.key)
            return f"granted {label}"

        return [grant]

    async def begin(self) -> None:
        """Let the council have members, who see its questions."""
        self._rooms = next(area for area in self.world.areas if isinstance(area, Rooms))
        self._plans: dict[str, Grant] = {}
        self._seen: set[str] = set()
        room = self._rooms.room(COUNCIL)
        for name, affiliation in MEMBERS.items():
            room.affiliations[JID.parse(f"{name}@capulet.example")] = affiliation
        self._rooms.service.asked = self._asked

    async def perform(self, action: Any) -> None:
        """Ask for something, as a program does or in a chat."""
        assert isinstance(action, Grant)
        label, who = f"r{action.number}", self.world.residents[action.who]
        self._plans[label] = action
        self.world.reactions[label] = action.reaction
        if action.who in CALLERS:
            who.wants(f"grant {label}")
            await who.execute(label, "grant", "async")
        elif action.number % 2:
            who.wants(f"grant {label}")
            await who.say(f"/run grant label={label}", f"{action.who}-{label}")
        elif (account := await self._rooms.into(COUNCIL, action.who)) is not None:
            who.wants(f"grant {label}")
            nick = self._rooms.nick(COUNCIL)
            await self._rooms.room(COUNCIL).say(account, f"{nick}: {label} grant, please.")

    def _asked(self, xml: str) -> None:
        message = ET.fromstring(xml)
        confirm = message.find(f"{CONFIRM}confirm")
        if confirm is None or confirm.get("id", "") in self._seen:
            return
        self._seen.add(confirm.get("id", ""))
        label = label_in(" ".join(confirm.itertext()))
        plan = self._plans.get(label.partition(".")[0])
        ballots = _ballots(self.world.chance) if plan is None else plan.ballots
        stanza_id = next((one.get("id", "") for one in message.findall("{*}stanza-id")), "")
        self.world.group.start_soon(
            self._vote, ballots, confirm.get("id", ""), stanza_id or message.get("id", ""), plan
        )

    async def _vote(
        self, ballots: Sequence[Ballot], id_: str, message: str, plan: Grant | None
    ) -> None:
        for number, ballot in enumerate(ballots):
            if plan is not None and plan.kill_after == number:
                self._kill()
            await anyio.sleep(ballot.after)
            await self._cast(ballot, id_, message)

    async def _cast(self, ballot: Ballot, id_: str, message: str) -> None:
        account = await self._rooms.into(COUNCIL, ballot.who)
        if account is None:
            return
        room, nick = self._rooms.room(COUNCIL), self._rooms.nick(COUNCIL)
        reply = f"<reply xmlns='urn:xmpp:reply:0' id='{message}' to='{COUNCIL}/{nick}'/>"
        match ballot.how:
            case "up" | "down" | "back" | "forged":
                shown = {"down": _DOWN, "back": ""}.get(ballot.how, _UP)
                reaction = f"<reaction>{shown}</reaction>" if shown else ""
                more = _FORGED if ballot.how == "forged" else ""
                about = f"<reactions xmlns='urn:xmpp:reactions:0' id='{message}'>{reaction}"
                await room.say(account, "", f"{about}</reactions>{more}")
            case "yes" | "no":
                await room.say(account, ballot.how, reply)
            case "named":
                await room.say(account, f"{nick}: yes {id_[:4]}")
            case "named no":
                await room.say(account, f"@{nick} no {id_[:4]}")
            case "plain":
                await room.say(account, "yes")
            case "private":
                await room.whisper(account, nick, "yes")

    def _kill(self) -> None:
        world = self.world
        if world.kit.process.is_alive:
            world.kills += 1
            world.history.fault("kill", "between two votes")
            world.kit.strike()


_FORGED: Final = (
    "<x xmlns='http://jabber.org/protocol/muc#user'><item affiliation='owner' role='moderator'"
    " jid='romeo@capulet.example/home'/></x>"
    "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='id-of-romeo@capulet.example'/>"
)
