"""Messages in the shape that clients send; README.md says how they are written down."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import msgspec

from component.link.messages.inbound import (
    Account,
    Actor,
    Attachment,
    Conversation,
    InboundMessage,
    Occupant,
    Reacted,
    Reference,
    ReplyAddress,
)
from xep.jid import JID
from xep.stanza import Incoming

AGENT = JID.parse("assistant@agent.example.com")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
QUESTION_ID = "c-q"
QUESTION_IN_ROOM_ID = "s-q"
CORRECTED_ID = "m0"
URL = "https://files.a.example/f1/river.jpg"
SAID = "Good evening"
CORRECTED = "Good morning"
WRITTEN = datetime(2026, 11, 20, 20, tzinfo=UTC)


class Shape(NamedTuple):
    """A message as one client sends it, and what it means."""

    client: str
    of: str
    note: str
    xml: str
    origin: str | None
    adds: frozenset[str]
    thread: str | None

    def __str__(self) -> str:
        return f"{self.client}: {self.of}{f', {self.note}' if self.note else ''}"

    @property
    def stanza(self) -> Incoming:
        """It, as the stream gives it to the router."""
        xml = self.xml.replace("<message", "<message xmlns='jabber:client'", 1)
        return Incoming.of(ET.fromstring(xml), len(xml))

    @property
    def sender(self) -> JID:
        return JID.parse(self.stanza.sender or "")

    @property
    def expected(self) -> InboundMessage:
        """What is read from it, `unclear` and `quotation` left out."""
        sender, stanza = self.sender, self.stanza
        room = sender.bare if self.of in _IN_ROOMS else None
        actor: Actor = Account(sender.bare)
        conversation = Conversation(AGENT, sender.bare, thread=self.thread)
        reply_to = ReplyAddress(str(sender), AGENT, "chat", self.thread)
        if stanza.type in ("normal", "headline"):
            reply_to = msgspec.structs.replace(reply_to, type="normal")
        if room is not None:
            in_public = stanza.type == "groupchat"
            actor = Occupant(room, "Alice", "o-alice" if in_public else None)
            conversation = Conversation(
                AGENT, room if in_public else sender, in_public, self.thread
            )
            if in_public:
                reply_to = ReplyAddress(str(room), AGENT, "groupchat", self.thread)
            else:
                reply_to = msgspec.structs.replace(reply_to, is_occupant=True)
        reply_to = msgspec.structs.replace(reply_to, shows_states="state" in self.adds)
        plain = InboundMessage(
            id=stanza.id,
            origin_id=self.origin,
            stanza_id="s1" if stanza.type == "groupchat" else None,
            type=stanza.type,  # type: ignore[arg-type] # one of the five that a message has
            sender=sender,
            principal=sender.bare,
            actor=actor,
            conversation=conversation,
            reply_to=reply_to,
            has_body="<body>" in self.xml,
            wants_receipt="receipt" in self.adds,
            markable="marker" in self.adds,
        )
        meaning = MEANINGS[self.of]
        if self.of == "mention":
            meaning = {"text": self._inside("body")}
        elif self.of == "reaction in a room":
            emoji = frozenset((self._inside("reaction"),))
            meaning = {"reacted": Reacted(QUESTION_IN_ROOM_ID, emoji)}
        return msgspec.structs.replace(plain, **meaning)

    def _inside(self, name: str) -> str:
        found = re.search(f"<{name}>(.*?)</{name}>", self.xml)
        assert found is not None
        return found[1]


_REPLY = {"text": "yes", "replies_to": Reference(QUESTION_ID, is_ours=True)}
_REACTION = {"reacted": Reacted(QUESTION_ID, frozenset("👍"))}
_FILE = {"attachments": (Attachment(url=URL),)}
_NAMED = Attachment(url=URL, name="river.jpg", media_type="image/jpeg", size=4096)
MEANINGS: dict[str, dict[str, object]] = {
    "chat": {"text": SAID},
    "formatted chat": {"text": SAID},
    "delayed chat": {"text": SAID, "delayed": True, "sent_at": WRITTEN},
    "quotation": {"text": "> {question}\nyes"},
    "action": {"text": "waves", "is_action": True},
    "reply": _REPLY,
    "reaction": _REACTION,
    "reaction in a reply": _REACTION | {"replies_to": Reference(QUESTION_ID, is_ours=True)},
    "reaction withdrawn": {"reacted": Reacted(QUESTION_ID, frozenset())},
    "encrypted reaction": _REACTION | {"encryption": "OMEMO"},
    "correction": {"text": CORRECTED, "replaces": CORRECTED_ID},
    "corrected reply": _REPLY | {"text": CORRECTED, "replaces": CORRECTED_ID},
    "emptied": {"replaces": CORRECTED_ID},
    "retraction": {"retracts": CORRECTED_ID},
    "file": _FILE,
    "file with a name": {"attachments": (_NAMED,)},
    "file with words": _FILE | {"text": "The river:"},
    "file with a name and words": {"attachments": (_NAMED,), "text": "The river:"},
    "broadcast": {"text": SAID},
    "link with a preview": {"text": "https://a.example/rivers"},
    "OMEMO": {"encryption": "OMEMO"},
    "OpenPGP": {"encryption": "OpenPGP"},
    "OTR": {"encryption": "OTR"},
    "keys of OMEMO": {},
    "encrypted state": {},
    "received": {"received": QUESTION_ID},
    "displayed": {"displayed": QUESTION_ID},
    "nothing said": {},
    "room": {"text": SAID},
    "correction in a room": {"text": CORRECTED, "replaces": CORRECTED_ID},
    "mention": {},  # the text and the emoji are as the client writes them
    "reply in a room": _REPLY | {"replies_to": Reference(QUESTION_IN_ROOM_ID, is_ours=True)},
    "reaction in a room": {},
    "retraction in a room": {"retracts": CORRECTED_ID},
    "file in a room": _FILE,
    "private message": {"text": SAID},
}
_IN_ROOMS = (
    *("room", "mention", "reply in a room", "reaction in a room", "retraction in a room"),
    *("correction in a room", "file in a room", "private message"),
)


def shapes() -> Iterator[Shape]:
    """All of all clients."""
    for file in sorted(Path(__file__).parent.glob("*.xml")):
        text = file.read_text()
        client = ET.fromstring(text)
        sent = re.findall("<message .*?</message>", text, re.DOTALL)
        for each, xml in zip(client, sent, strict=True):
            yield Shape(
                client=client.attrib["name"],
                of=each.attrib["of"],
                note=each.get("note", ""),
                # Without the white space that is there for those who read the file.
                xml=re.sub(r">\s+<", "><", xml),
                origin=each.get("origin"),
                adds=frozenset(each.get("adds", "").split()),
                thread=each.get("thread"),
            )
