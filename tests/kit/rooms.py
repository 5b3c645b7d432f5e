"""A multi-user chat service in memory (XEP-0045), as Prosody or ejabberd behave.

rooms = Rooms(kit.xmpp)
room = rooms.create("lobby")
juliet = kit.peer("juliet@capulet.example/balcony")
await room.enter(juliet, "Juliet")
await room.say(juliet, "Agent: hello")
assert await juliet.hear("Hello") == "Hello, Juliet."

Occupants from which a message or a presence comes back are removed. The two servers differ in this:

- Prosody gives occupants ids (XEP-0421), and creates rooms that somebody enters.
- ejabberd sends the presence of the room itself to those who enter or are removed, and returns the
  payload of a stanza with an error.
- In Prosody a moderator can change the subject, in ejabberd everybody.
- ejabberd keeps the payloads of a presence if somebody changes the nickname, and removes an
  occupant for any error that answers a presence.
"""

import re
from collections import deque
from datetime import datetime
from itertools import count
from typing import Final, Literal, TypeAlias

import anyio.lowlevel
import msgspec

from component import system
from tests.kit.elements import delayed, inside, returned
from tests.kit.xmpp import Peer, Xmpp, parse
from xep import muc
from xep.binding.escaping import escape_attribute, escape_text
from xep.disco import Feature, Identity, InfoQuery
from xep.jid import JID
from xep.muc import Affiliation, Role
from xep.stanza import IQ, Incoming
from xep.stanza_error import Condition, ErrorType, StanzaError
from xep.stream import StreamError

DOMAIN: Final = "rooms.capulet.example"
"""The address of the service, unless another one is given."""
Server: TypeAlias = Literal["prosody", "ejabberd"]
_HISTORY: Final = 20
_UNREACHABLE: Final = frozenset(
    (
        "gone",
        "internal-server-error",
        "item-not-found",
        "jid-malformed",
        "recipient-unavailable",
        "redirect",
        "remote-server-not-found",
        "remote-server-timeout",
        "service-unavailable",
    )
)
"""Errors of occupants that are removed for them."""
_EJABBERD_LOSES: Final = (
    "It is not allowed to send error messages to the room. The participant ({}) has sent an error"
    " message ({}) and got kicked from the room"
)
_CAPS: Final = (
    "<c xmlns='http://jabber.org/protocol/caps' hash='sha-1'"
    " node='http://www.process-one.net/en/ejabberd/' ver='94Y7MuW5ZbbekK4bo1R7KliKmS4='/>"
)
_JOIN: Final = re.compile(
    r"<(?:\w+:)?x xmlns(?::\w+)?='http://jabber.org/protocol/muc'(?:/>|.*?</(?:\w+:)?x>)"
)
_MARK: Final = f"{{{muc.USER}}}x"
_ROLES: Final[dict[str, Role]] = {
    "owner": "moderator",
    "admin": "moderator",
    "member": "participant",
    "none": "participant",
    "outcast": "none",
}


class Occupant(msgspec.Struct, eq=False):
    """An occupant: one resource of an account."""

    jid: JID
    nick: str
    affiliation: Affiliation = "none"
    role: Role = "participant"
    presence: str = ""
    """The payloads of its last presence, as XML."""
    hats: str = ""


class Room:
    """A room. Its options can be changed at any time.

    Attributes:
        occupants: by nickname.
        shows_accounts: whether everybody sees real JIDs; moderators always do.
        is_moderated: whether those without an affiliation have no voice.
        members_only: whether only members may enter.
        affiliations: by bare JID.
        log: the bodies of all messages that were sent to all occupants.
    """

    def __init__(self, service: "Rooms", jid: JID) -> None:
        self.jid = jid
        self.occupants: dict[str, Occupant] = {}
        self.shows_accounts = False
        self.is_moderated = False
        self.members_only = False
        self.affiliations: dict[JID, Affiliation] = {}
        self.log: list[str] = []
        self._service = service
        self._history: deque[tuple[datetime, str]] = deque(maxlen=_HISTORY)
        self._subject: tuple[datetime, str] | None = None
        """When it was changed, and the message."""
        self._ids = count(1)

    # What a test does.

    async def enter(
        self, peer: Peer, nick: str, *, affiliation: Affiliation | None = None
    ) -> Occupant:
        """Let a client of a test enter the room; return it as an occupant."""
        if affiliation is not None:
            self.affiliations[peer.jid.bare] = affiliation
        join = "<x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x>"
        to = escape_attribute(f"{self.jid}/{nick}")
        await peer.send(f"<presence to='{to}'>{join}</presence>")
        await anyio.lowlevel.checkpoint()
        return self.occupants[nick]

    async def leave(self, peer: Peer) -> None:
        """Let a client of a test leave the room."""
        occupant = self.of(peer.jid)
        assert occupant is not None, "it is in the room"
        to = escape_attribute(f"{self.jid}/{occupant.nick}")
        await peer.send(f"<presence type='unavailable' to='{to}'/>")

    async def say(self, peer: Peer, text: str, inside: str = "", id_: str = "") -> str:
        """Let a client say something, with more XML inside of the message; return the message's
        id. `text` is left out if it is empty.
        """
        id_ = id_ or f"{peer.jid.local}-in-room-{next(self._ids)}"
        body = f"<body>{escape_text(text)}</body>" if text else ""
        await peer.send(
            f"<message type='groupchat' to='{self.jid}' id='{escape_attribute(id_)}'>"
            f"{body}{inside}</message>"
        )
        return id_

    async def whisper(self, peer: Peer, nick: str, text: str) -> None:
        """Let a client send a private message to an occupant (XEP-0045 §7.5)."""
        to = escape_attribute(f"{self.jid}/{nick}")
        mark = "<x xmlns='http://jabber.org/protocol/muc#user'/>"
        await peer.send(
            f"<message type='chat' to='{to}' id='pm-{next(self._ids)}'>"
            f"<body>{escape_text(text)}</body>{mark}</message>"
        )

    def remove(self, nick: str, *codes: int, destroyed: bool = False, shown: str = "") -> None:
        """Kick (307), ban (301) or otherwise remove an occupant; 110 is added for itself. `shown`
        are other payloads of its last presence.
        """
        gone = self.occupants.pop(nick)
        gone.role = "none"
        if muc.BANNED in codes:
            gone.affiliation = self.affiliations[gone.jid.bare] = "outcast"
        gone.presence = shown
        self._show_room(gone, "unavailable")
        end = "<destroy/>" if destroyed else ""
        for other in (*self.occupants.values(), gone):
            own = (muc.SELF,) if other is gone else ()
            self._show(gone, other, (*codes, *own), type_="unavailable", inside=end)

    def destroy(self) -> None:
        """Destroy the room (XEP-0045 §10.9)."""
        del self._service.rooms[self.jid]
        self.remove_all(destroyed=True)

    def remove_all(self, *codes: int, destroyed: bool = False) -> None:
        """Remove all occupants."""
        for nick in list(self.occupants):
            if nick in self.occupants:  # not lost meanwhile
                self.remove(nick, *codes, destroyed=destroyed)

    def set_role(self, nick: str, role: Role) -> None:
        """Grant or revoke voice, for example (XEP-0045 §8.3)."""
        changed = self.occupants[nick]
        changed.role = role
        for other in list(self.occupants.values()):
            self._show(changed, other, (muc.SELF,) if other is changed else ())

    def show_accounts(self) -> None:
        """Show real JIDs to all from now on (XEP-0045 §10.2.1)."""
        self.shows_accounts = True
        codes = "".join(f"<status code='{code}'/>" for code in (muc.CONFIGURED, muc.NON_ANONYMOUS))
        self._broadcast(
            f"<message type='groupchat' from='{self.jid}'>"
            f"<x xmlns='{muc.USER}'>{codes}</x></message>"
        )

    def moderate(self, stanza_id: str) -> None:
        """Retract a message as a moderator (XEP-0425 §5)."""
        self._broadcast(
            f"<message type='groupchat' from='{self.jid}' id='moderated-{next(self._ids)}'>"
            f"<retract xmlns='urn:xmpp:message-retract:1' id='{escape_attribute(stanza_id)}'>"
            "<moderated xmlns='urn:xmpp:message-moderate:1'/></retract></message>"
        )

    def of(self, jid: JID) -> Occupant | None:
        """Return the occupant with a real address."""
        return next((one for one in self.occupants.values() if one.jid == jid), None)

    def occupant_id(self, jid: JID) -> str:
        """Return the id of an occupant (XEP-0421)."""
        return f"id-of-{jid.bare}"

    # What arrives.

    def presence(self, sender: JID, nick: str, stanza: Incoming) -> None:
        """Let a client enter, change its presence or nickname, or leave. Raises StanzaError."""
        occupant = self.of(sender)
        if stanza.type == "unavailable":
            if occupant is not None:
                self.remove(occupant.nick, shown=inside(stanza))
            return
        affiliation = self.affiliations.get(sender.bare, "none")
        taken = self.occupants.get(nick)
        refusal: Condition
        if affiliation == "outcast":
            refusal = "forbidden"
        elif self.members_only and affiliation == "none":
            refusal = "registration-required"
        elif taken is not None and taken is not occupant:
            refusal = "conflict"
        else:
            self._enter_or_change(sender, nick, affiliation, stanza)
            return
        raise StanzaError(refusal)

    def _enter_or_change(
        self, sender: JID, nick: str, affiliation: Affiliation, stanza: Incoming
    ) -> None:
        occupant = self.of(sender)
        shown = _JOIN.sub("", inside(stanza))
        if occupant is None:
            occupant = Occupant(sender, nick, affiliation, self._first_role(affiliation))
        elif occupant.nick != nick:
            if self._service.server == "prosody":
                occupant.presence = shown
            self._rename(occupant, nick)
            return
        occupant.presence = shown
        if nick not in self.occupants or muc.Join.xml.tag in stanza.child_names:
            join = stanza.payload(muc.Join)
            self._enter(occupant, (None if join is None else join.history) or muc.History())
        else:
            self.set_role(nick, occupant.role)

    def _first_role(self, affiliation: Affiliation) -> Role:
        is_visitor = self.is_moderated and affiliation == "none"
        return "visitor" if is_visitor else _ROLES[affiliation]

    def _enter(self, new: Occupant, wanted: muc.History) -> None:
        """Tell everybody that an occupant has entered; it may have been there before."""
        others = [other for other in self.occupants.values() if other is not new]
        self.occupants[new.nick] = new
        self._show_room(new)
        for other in others:
            self._show(other, new)
        for other in others:
            if self.occupants.get(other.nick) is other:
                self._show(new, other)
        self._show(new, new, (muc.SELF, *((100,) if self.shows_accounts else ())))
        since, most = wanted.since, wanted.max_stanzas
        late = [xml for at, xml in self._history if since is None or at >= since]
        for xml in late if most is None else late[max(0, len(late) - most) :]:
            self._service.say(_to(xml, new.jid))
        empty = f"<message type='groupchat' from='{self.jid}'><subject/></message>"
        at, xml = self._subject or (None, empty)
        if at is not None and self._service.server == "prosody":
            xml = delayed(xml, str(self.jid), at)
        self._service.say(_to(xml, new.jid))

    def _rename(self, occupant: Occupant, nick: str) -> None:
        del self.occupants[occupant.nick]
        everybody = (*self.occupants.values(), occupant)
        for other in everybody:
            own = (muc.SELF,) if other is occupant else ()
            codes = (muc.RENAMED, *own)
            self._show(occupant, other, codes, type_="unavailable", nick=nick)
        occupant.nick = nick
        self.occupants[nick] = occupant
        for other in everybody:
            self._show(occupant, other, (muc.SELF,) if other is occupant else ())

    def message(self, sender: JID, nick: str, stanza: Incoming) -> None:
        """Pass a message on to everybody, or to one occupant. Raises StanzaError."""
        occupant = self.of(sender)
        if stanza.type == "error" and occupant is not None:
            condition = stanza.error().condition
            if condition in _UNREACHABLE:
                self._lose(occupant, condition)
                return
        if occupant is None:
            refused: ErrorType = "cancel" if self._service.server == "prosody" else "modify"
            raise StanzaError("not-acceptable", "You are not in the room.", type=refused)
        known = self._known(occupant)
        if nick:
            to = self.occupants.get(nick)
            if to is None:
                raise StanzaError("item-not-found")
            mark = "" if _MARK in stanza.child_names else f"<x xmlns='{muc.USER}'/>"
            private = stanza.forward(from_=f"{self.jid}/{occupant.nick}", to=str(to.jid))
            self._service.say(_with(private, mark + known))
            return
        if occupant.role == "visitor":
            raise StanzaError("forbidden", "You have no voice.")
        from_ = escape_attribute(f"{self.jid}/{occupant.nick}")
        body, subject = stanza.text_of("body"), stanza.text_of("subject")
        if subject is not None and not body:
            self._change_subject(occupant, subject, stanza)
            return
        stanza_id = ""
        if body:
            self.log.append(body)
            stanza_id = self._stanza_id()
        id_ = f" id='{escape_attribute(stanza.id)}'" if stanza.id else ""
        sent = (
            f"<message type='groupchat' from='{from_}'{id_}>{inside(stanza)}{stanza_id}{known}"
            "</message>"
        )
        if body:
            self._history.append((system.now(), delayed(sent, str(self.jid), system.now())))
        self._broadcast(sent)

    def presence_returns(self, sender: JID, condition: Condition) -> None:
        """Remove an occupant to whom a presence could not be delivered."""
        occupant = self.of(sender)
        is_lost = condition in _UNREACHABLE or self._service.server == "ejabberd"
        if occupant is not None and is_lost:
            self._lose(occupant, condition)

    def _lose(self, occupant: Occupant, condition: Condition) -> None:
        """Remove an occupant that cannot be reached."""
        if self._service.server == "prosody":
            words, codes = f"Kicked: {condition.replace('-', ' ')}", (333,)
        else:
            words, codes = _EJABBERD_LOSES.format(occupant.nick, condition), ()
        self.remove(occupant.nick, *codes, shown=f"<status>{words}</status>")

    def _change_subject(self, occupant: Occupant, subject: str, stanza: Incoming) -> None:
        """Change the subject: in Prosody a moderator can."""
        is_prosody = self._service.server == "prosody"
        if is_prosody and occupant.role != "moderator":
            raise StanzaError("forbidden")
        from_ = escape_attribute(f"{self.jid}/{occupant.nick}")
        text = f"<subject>{escape_text(subject)}</subject>"
        changed = f"<message type='groupchat' from='{from_}'>{text}</message>"
        self._subject = system.now(), changed
        if not is_prosody:
            id_ = f" id='{escape_attribute(stanza.id)}'" if stanza.id else ""
            changed = _with(changed.replace(">", f"{id_}>", 1), self._stanza_id())
        self._broadcast(changed)

    def _stanza_id(self) -> str:
        return f"<stanza-id xmlns='urn:xmpp:sid:0' by='{self.jid}' id='s{next(self._ids)}'/>"

    def _known(self, occupant: Occupant) -> str:
        """Return the id of an occupant, as XML; empty if the server has none."""
        if self._service.server == "ejabberd":
            return ""
        id_ = self.occupant_id(occupant.jid)
        return f"<occupant-id xmlns='urn:xmpp:occupant-id:0' id='{id_}'/>"

    def _broadcast(self, xml: str) -> None:
        for other in list(self.occupants.values()):
            self._service.say(_to(xml, other.jid))

    def _show_room(self, to: Occupant, type_: str = "") -> None:
        """Send the presence of the room itself, as ejabberd does before that of occupants."""
        if self._service.server == "ejabberd":
            kind, caps = (f" type='{type_}'", "") if type_ else ("", _CAPS)
            self._service.say(
                f"<presence from='{self.jid}' id='p{next(self._ids)}'{kind}"
                f" to='{escape_attribute(str(to.jid))}'>{caps}</presence>"
            )

    def _show(
        self,
        of: Occupant,
        to: Occupant,
        codes: tuple[int, ...] = (),
        *,
        type_: str = "",
        nick: str = "",
        inside: str = "",
    ) -> None:
        is_known = self.shows_accounts or to.role == "moderator" or to is of
        jid = f" jid='{escape_attribute(str(of.jid))}'" if is_known else ""
        new = f" nick='{escape_attribute(nick)}'" if nick else ""
        item = f"<item affiliation='{of.affiliation}' role='{of.role}'{jid}{new}/>"
        statuses = "".join(f"<status code='{code}'/>" for code in codes)
        # Prosody leaves it out where it tells an occupant its new nickname.
        known = "" if nick and of is to else self._known(of)
        shown = "" if nick else of.presence
        kind = f" type='{type_}'" if type_ else ""
        self._service.say(
            f"<presence{kind} from='{escape_attribute(f'{self.jid}/{of.nick}')}'"
            f" to='{escape_attribute(str(to.jid))}'>{shown}{of.hats}{known}"
            f"<x xmlns='{muc.USER}'>{item}{statuses}{inside}</x></presence>"
        )


class Rooms:
    """The service.

    Args:
        server: how it behaves.

    Attributes:
        rooms: the rooms, by address.
    """

    def __init__(self, xmpp: Xmpp, domain: str = DOMAIN, *, server: Server = "prosody") -> None:
        self.server: Server = server
        self.rooms: dict[JID, Room] = {}
        self._domain = domain
        xmpp.add_service(domain, "secret of the rooms")
        self._home = xmpp.connect_link(domain, self)

    def create(self, name: str) -> Room:
        """Create a room."""
        jid = JID.parse(f"{name}@{self._domain}")
        made = self.rooms[jid] = Room(self, jid)
        return made

    def connect(self, *, is_connected: bool) -> None:
        """Connect the service to its server, or not: then nobody reaches it."""
        self._home.table.components[self._domain] = self if is_connected else None

    def close(self, error: StreamError) -> None:
        """Never called."""
        raise AssertionError(f"the stream of {self._domain} has ended: {error}")

    def say(self, xml: str) -> None:
        """Send a stanza of the service."""
        stanza = parse(xml)
        self._home.from_component(JID.parse(stanza.sender or ""), stanza, self)

    def send(self, xml: str) -> None:
        """Take a stanza from the server."""
        stanza = parse(xml)
        to, sender = JID.parse(stanza.to or self._domain), JID.parse(stanza.sender or "")
        room = self.rooms.get(to.bare)
        try:
            if stanza.kind == "iq":
                self._iq(stanza, room, to, sender)
            elif stanza.kind == "message":
                self._message(stanza, room, to, sender)
            elif stanza.type != "error":
                self._presence(stanza, room, to, sender)
            elif room is not None:
                room.presence_returns(sender, stanza.error().condition)
        except StanzaError as error:
            if stanza.type in ("error", "result"):
                return
            id_ = f" id='{escape_attribute(stanza.id)}'" if stanza.id else ""
            xml = (
                f"<{stanza.kind} type='error' from='{escape_attribute(str(to))}'{id_}"
                f" to='{escape_attribute(str(sender))}'>{error.encode()}</{stanza.kind}>"
            )
            self.say(xml if self.server == "prosody" else returned(xml, stanza))

    def _presence(self, stanza: Incoming, room: Room | None, to: JID, sender: JID) -> None:
        if to.resource is None:
            return
        if room is None:
            if stanza.type == "unavailable":
                raise StanzaError("item-not-found")
            if self.server == "ejabberd":
                raise StanzaError("forbidden", "Room creation is denied.")
            room = self.rooms[to.bare] = Room(self, to.bare)
            room.affiliations[sender.bare] = "owner"
        room.presence(sender, to.resource, stanza)

    def _message(self, stanza: Incoming, room: Room | None, to: JID, sender: JID) -> None:
        if room is None:
            raise StanzaError("item-not-found")  # not for an error, which nobody answers
        room.message(sender, to.resource or "", stanza)

    def _iq(self, stanza: Incoming, room: Room | None, to: JID, sender: JID) -> None:
        if to.resource is not None:
            self._forward(stanza, room, to, sender)
            return
        if stanza.type not in ("get", "set"):
            return
        if stanza.sole_child != InfoQuery.xml.tag:
            raise StanzaError("service-unavailable")
        if room is None and to.local is not None:
            raise StanzaError("item-not-found")
        identity = Identity(category="conference", type="text", name=to.local)
        features = [muc.NAMESPACE, "jabber:iq:register"]
        if room is not None:
            features.append("muc_nonanonymous" if room.shows_accounts else "muc_semianonymous")
            features.append("muc_moderated" if room.is_moderated else "muc_unmoderated")
            features.append("muc_membersonly" if room.members_only else "muc_open")
            if self.server == "prosody":
                features += [
                    "urn:xmpp:occupant-id:0",
                    "urn:xmpp:sid:0",
                    f"{muc.NAMESPACE}#stable_id",
                ]
        info = InfoQuery(
            identities=(identity,), features=tuple(Feature(var=var) for var in features)
        )
        self.say(IQ(type="result", id=stanza.id or "", to=sender, from_=to, payload=info).encode())

    def _forward(self, stanza: Incoming, room: Room | None, to: JID, sender: JID) -> None:
        """Pass an IQ on between occupants; a ping to oneself is answered (XEP-0410)."""
        mine = None if room is None else room.of(sender)
        if room is None or mine is None:
            refused: ErrorType = "cancel" if self.server == "prosody" else "modify"
            raise StanzaError("not-acceptable", type=refused)
        other = room.occupants.get(to.resource or "")
        if other is None:
            raise StanzaError("item-not-found")
        if other is mine and stanza.type == "get":
            self.say(IQ(type="result", id=stanza.id or "", to=sender, from_=to).encode())
            return
        from_ = f"{room.jid}/{mine.nick}"
        self.say(stanza.forward(from_=from_, to=str(other.jid)))


def _with(xml: str, more: str) -> str:
    """Return a message that has a child, with more XML inside of it."""
    return xml.removesuffix("</message>") + more + "</message>"


def _to(xml: str, to: JID) -> str:
    name, rest = xml.split(" ", 1)
    return f"{name} to='{escape_attribute(str(to))}' {rest}"
