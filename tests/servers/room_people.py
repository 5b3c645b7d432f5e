"""People in rooms of real servers: slixmpp occupants who speak, reply, react, moderate and rename.

with entered(server, room, juliet="Juliet", romeo="Romeo") as (juliet, romeo):
    said = juliet.say("Hello")
    heard = romeo.hears("Hello")
    romeo.react(heard, "👍")
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient
from tests.servers.talk import login
from tests.servers.watching import assert_result

MUC = "http://jabber.org/protocol/muc"
USER = f"{MUC}#user"
FORM = "jabber:x:data"
PERSON = ("xep_0030", "xep_0115", "xep_0199")
"""The plugins of a client with capabilities."""
_ids = itertools.count(1)


class Occupant:
    """A person in a room. `client` is the person's client, which is connected."""

    def __init__(self, client: SlixClient, room: str, nick: str) -> None:
        self.client = client
        self.room = room
        self.nick = nick

    @property
    def address(self) -> str:
        """The address of the occupant."""
        return f"{self.room}/{self.nick}"

    # Entering and leaving.

    def enter(self, payload: str = "", *, password: str = "") -> Element:
        """Enter the room, open it to all if it is new, and return the own presence."""
        secret = f"<password>{escape(password)}</password>" if password else ""
        self.show(f"<x xmlns='{MUC}'>{secret}</x>{payload}")
        own = self.client.presences.take(presence_of(self.address, "110"))
        if "201" in codes(own):
            self.configure()
        return own

    def show(self, payload: str = "") -> None:
        """Send a presence to the room."""
        self.client.send_raw(f"<presence to={quoteattr(self.address)}>{payload}</presence>")

    def leave(self) -> None:
        """Leave the room."""
        self.client.send_raw(f"<presence to={quoteattr(self.address)} type='unavailable'/>")

    def rename(self, nick: str) -> None:
        """Take another nickname."""
        self.nick = nick
        self.show()
        self.client.presences.take(presence_of(self.address, "110"))

    # Speaking.

    def say(self, text: str, payload: str = "", *, to: str = "") -> str:
        """Say something to all, or to the occupant with a nickname alone; return its id."""
        id_ = f"said-{next(_ids)}"
        address, type_ = (f"{self.room}/{to}", "chat") if to else (self.room, "groupchat")
        mark = f"<x xmlns='{USER}'/>" if to else ""
        body = f"<body>{escape(text)}</body>" if text else ""
        self.client.send_raw(
            f"<message to={quoteattr(address)} type='{type_}' id='{id_}'>"
            f"{body}<origin-id xmlns='urn:xmpp:sid:0' id='{id_}'/>{mark}{payload}</message>"
        )
        return id_

    def reply(self, to: Element, text: str) -> str:
        """Reply to a message of the room (XEP-0461)."""
        reference = f"to={quoteattr(to.get('from', ''))} id={quoteattr(room_id(to, self.room))}"
        return self.say(text, f"<reply xmlns='urn:xmpp:reply:0' {reference}/>")

    def react(self, to: Element, *emoji: str) -> str:
        """React to a message of the room (XEP-0444)."""
        inside = "".join(f"<reaction>{each}</reaction>" for each in emoji)
        about = quoteattr(room_id(to, self.room))
        return self.say(
            "", f"<reactions xmlns='urn:xmpp:reactions:0' id={about}>{inside}</reactions>"
        )

    def hears(self, text: str, by: str = "", timeout: float = 120.0) -> Element:
        """Wait for a message to all with a text, of the occupant with a nickname if it is given."""
        sender = f"{self.room}/{by}"
        return self.client.messages.take(
            lambda each: (
                each.get("type") == "groupchat"
                and text in (each.findtext("{*}body") or "")
                and (not by or each.get("from") == sender)
            ),
            timeout,
        )

    def is_told(self, text: str, by: str) -> Element:
        """Wait for a private message of an occupant."""
        sender = f"{self.room}/{by}"
        return self.client.messages.take(
            lambda each: (
                each.get("type") == "chat"
                and each.get("from") == sender
                and text in (each.findtext("{*}body") or "")
            )
        )

    def sees(self, nick: str, *codes_: str, type_: str | None = None) -> Element:
        """Wait for a presence of the occupant with a nickname."""
        return self.client.presences.take(presence_of(f"{self.room}/{nick}", *codes_, type_=type_))

    # Moderating.

    def configure(self, **options: object) -> None:
        """Configure the room, as its owner; without options, accept the defaults."""
        fields = {"FORM_TYPE": f"{MUC}#roomconfig"} if options else {}
        fields |= {f"muc#roomconfig_{name}": str(value) for name, value in options.items()}
        inside = "".join(
            f"<field var={quoteattr(var)}><value>{escape(value)}</value></field>"
            for var, value in fields.items()
        )
        self._set(f"{MUC}#owner", f"<x xmlns='{FORM}' type='submit'>{inside}</x>")

    def administrate(self, **item: str) -> None:
        """Change what an occupant or a person is, such as `nick="Romeo", role="visitor"`."""
        reason = escape(item.pop("reason", ""))
        attributes = " ".join(f"{name}={quoteattr(value)}" for name, value in item.items())
        self._set(f"{MUC}#admin", f"<item {attributes}><reason>{reason}</reason></item>")

    def kick(self, nick: str, reason: str = "") -> None:
        """Kick an occupant."""
        self.administrate(nick=nick, role="none", reason=reason)

    def ban(self, jid: str, reason: str = "") -> None:
        """Ban an account."""
        self.administrate(jid=jid, affiliation="outcast", reason=reason)

    def destroy(self, reason: str = "", instead: str = "") -> None:
        """Destroy the room."""
        jid = f" jid={quoteattr(instead)}" if instead else ""
        inside = f"<destroy{jid}><reason>{escape(reason)}</reason></destroy>"
        self._set(f"{MUC}#owner", inside)

    def moderate(self, message: Element, reason: str = "") -> None:
        """Retract a message of somebody else (XEP-0425), where the room can do that."""
        inside = f"<retract xmlns='urn:xmpp:message-retract:0'/><reason>{escape(reason)}</reason>"
        moderated = f"<moderate xmlns='urn:xmpp:message-moderate:0'>{inside}</moderate>"
        about = quoteattr(room_id(message, self.room))
        payload = f"<apply-to xmlns='urn:xmpp:fasten:0' id={about}>{moderated}</apply-to>"
        assert_result(self.client.iq(self.room, payload, "set"))

    def invite(self, jid: str, *, direct: bool = True) -> None:
        """Invite somebody, directly (XEP-0249) or through the room."""
        if direct:
            invitation = f"<x xmlns='jabber:x:conference' jid={quoteattr(self.room)}/>"
            self.client.send_raw(f"<message to={quoteattr(jid)}>{invitation}</message>")
        else:
            inside = f"<invite to={quoteattr(jid)}/>"
            self.client.send_raw(
                f"<message to={quoteattr(self.room)}><x xmlns='{USER}'>{inside}</x></message>"
            )

    def ask(self, nick: str, payload: str) -> Element:
        """Ask the client of an occupant something by IQ; return its answer."""
        return self.client.iq(f"{self.room}/{nick}", payload)

    def _set(self, namespace: str, inside: str) -> None:
        payload = f"<query xmlns='{namespace}'>{inside}</query>"
        assert_result(self.client.iq(self.room, payload, "set"))


@contextmanager
def entered(server: Server, room: str, **nicks: str) -> Iterator[tuple[Occupant, ...]]:
    """People in a room, by account; the first one creates it if there is none."""
    with ExitStack() as stack:
        people = []
        for account, nick in nicks.items():
            client = stack.enter_context(person(server, account))
            people.append(Occupant(client, room, nick))
            people[-1].enter()
        yield tuple(people)


@contextmanager
def person(server: Server, account: str) -> Iterator[SlixClient]:
    """The client of a person: by default, slixmpp says that it is a program."""
    client = login(server, account, plugins=PERSON, presence=False)
    with client:

        async def identify(xmpp: Any) -> None:
            await xmpp.plugin["xep_0030"].add_identity(category="client", itype="pc")
            await xmpp.plugin["xep_0115"].update_caps()

        client.run(identify)
        client.send_raw("<presence/>")
        yield client


def codes(stanza: Element) -> set[str]:
    """The status codes of a stanza of a room."""
    return {str(each.get("code")) for each in stanza.iter(f"{{{USER}}}status")}


def presence_of(
    address: str, *expected: str, type_: str | None = None
) -> Callable[[Element], bool]:
    """Whether a presence is that of an occupant, and has status codes."""
    return lambda stanza: (
        stanza.get("from") == address
        and stanza.get("type") == type_
        and codes(stanza).issuperset(expected)
    )


def room_id(message: Element, room: str) -> str:
    """The id that a room has given a message (XEP-0359)."""
    for each in message.iter("{urn:xmpp:sid:0}stanza-id"):
        if each.get("by") == room:
            return str(each.get("id"))
    raise AssertionError("the room has given the message no id")
