"""What a person's message says in plain text, and whether it says anything besides.

The text of a message is not always what its sender says: it may be the fallback of a reaction, a
retraction or an encrypted message, it may replace what was said before, or repeat somebody else's
words. So only a message that carries nothing but what clients add to every message counts as an
answer. That list is short and known; what else a message can carry is neither.
"""

from typing import Final

import msgspec

from xep.binding import ContentError
from xep.chat_states import NAMESPACE as CHAT_STATES
from xep.fallback import Fallback, without_fallback
from xep.jid import JID, JIDError
from xep.message_replies import NAMESPACE as REPLIES
from xep.message_replies import Reply
from xep.stanza import NAMESPACE as STANZAS
from xep.stanza import Incoming

_PLAIN: Final = frozenset(
    (
        f"{{{STANZAS}}}body",
        f"{{{STANZAS}}}thread",
        # Chat states (XEP-0085), and what asks for receipts and markers (XEP-0184, XEP-0333).
        *(
            f"{{{CHAT_STATES}}}{state}"
            for state in ("active", "composing", "gone", "inactive", "paused")
        ),
        "{urn:xmpp:receipts}request",
        "{urn:xmpp:chat-markers:0}markable",
        # Identifiers (XEP-0359), and the note of an archive of old (XEP-0313).
        "{urn:xmpp:sid:0}origin-id",
        "{urn:xmpp:sid:0}stanza-id",
        "{urn:xmpp:mam:tmp}archived",
        # Who writes, for those who do not have them in their roster (XEP-0172).
        "{http://jabber.org/protocol/nick}nick",
        # How it is to be kept and copied (XEP-0334, XEP-0280 §6.1), and shown (XEP-0393 §7).
        "{urn:xmpp:hints}no-copy",
        "{urn:xmpp:hints}no-permanent-store",
        "{urn:xmpp:hints}no-store",
        "{urn:xmpp:hints}store",
        "{urn:xmpp:carbons:2}private",
        "{urn:xmpp:styling:0}unstyled",
        # Replies, whose quotation is taken out below (XEP-0461, XEP-0428).
        Reply.xml.tag,
        Fallback.xml.tag,
    )
)
_NAMED: Final = {
    "{urn:xmpp:message-correct:0}replace": "it corrects an earlier message",
    "{urn:xmpp:eme:0}encryption": "it is encrypted",
    "{urn:xmpp:reactions:0}reactions": "it is a reaction",
    f"{{{STANZAS}}}subject": "it has a subject",
}
_LONGEST_NAME: Final = 60


class PlainText(msgspec.Struct, frozen=True):
    """What a message says.

    `text` is stripped, and without the quotation of a reply. `replies_to` is the id of the message
    of ours that it replies to: None if it is no reply, empty if it replies to another's. `besides`
    is why it counts as no plain answer, as a clause; None if it does.
    """

    text: str
    replies_to: str | None = None
    besides: str | None = None


def plain_text(stanza: Incoming, agent: JID, *, also: str = "") -> PlainText:
    """What a message to the bare address `agent` of ours says; `also` is one more name it may
    carry, once.
    """
    text = (stanza.text_of("body", stanza.lang) or "").strip()
    names = stanza.child_names
    for name in names:
        if name not in _PLAIN and name != also:
            return PlainText(text, besides=_besides(name))
    if also and names.count(also) != 1:
        return PlainText(text, besides="it chooses more than one thing")
    if len({each.strip() for each in stanza.texts_of("body")}) > 1:
        return PlainText(text, besides="it says different things in several languages")
    if len(set(stanza.texts_of("thread"))) > 1:
        return PlainText(text, besides="it names several threads")
    if Reply.xml.tag not in names and Fallback.xml.tag not in names:
        return PlainText(text)
    return _reply(stanza, agent, text)


def _reply(stanza: Incoming, agent: JID, text: str) -> PlainText:
    names = stanza.child_names
    unclear = PlainText(text, besides="its text is partly there for other clients only")
    if names.count(Reply.xml.tag) != 1 or names.count(Fallback.xml.tag) > 1:
        return unclear
    try:
        reply, fallback = stanza.require(Reply), stanza.payload(Fallback)
        if fallback is not None and fallback.for_ != REPLIES:
            return unclear
        if fallback is not None:
            # The ranges count from the beginning of the text as it came.
            said = stanza.text_of("body", stanza.lang) or ""
            text = without_fallback(said, fallback).strip()
        ours = reply.to is None or JID.parse(reply.to).bare == agent.bare
    except (ContentError, JIDError, ValueError):
        return unclear
    return PlainText(text, replies_to=reply.id if ours else "")


def _besides(name: str) -> str:
    local = name.rpartition("}")[2]
    if local == "encrypted":
        return "it is encrypted"
    if local in ("retract", "apply-to"):
        return "it takes back an earlier message"
    said = "".join(one for one in local[:_LONGEST_NAME] if one.isalnum() or one in "-_.")
    return _NAMED.get(name, f"it carries <{said}/> as well")
