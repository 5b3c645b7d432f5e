"""Answers in words: they count for the question that they are meant for, if they are answers at
all.
"""

import anyio

from conformance.checks.confirmation import CONFIRM, asks, asks_about, decision, is_open
from conformance.checks.follow import ENDS, begin, next_event
from conformance.model import check
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent.task import Cancel

_STANDS_S = 3.0
_ENOUGH_S = _STANDS_S + 0.3
_MOST_BYTES = 16_384
_MOST_LINES = 100
_PLAIN = (
    "<active xmlns='http://jabber.org/protocol/chatstates'/>"
    "<request xmlns='urn:xmpp:receipts'/><markable xmlns='urn:xmpp:chat-markers:0'/>"
    "<origin-id xmlns='urn:xmpp:sid:0' id='o-1'/><store xmlns='urn:xmpp:hints'/>"
)
_BESIDES = {
    "a correction": "<replace xmlns='urn:xmpp:message-correct:0' id='m-0'/>",
    "a retraction": "<retract xmlns='urn:xmpp:message-retract:1' id='m-0'/>"
    "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:message-retract:1'/>",
    "an encrypted message": "<encrypted xmlns='eu.siacs.conversations.axolotl'/>"
    "<encryption xmlns='urn:xmpp:eme:0' namespace='eu.siacs.conversations.axolotl'/>",
    "a reaction": "<reactions xmlns='urn:xmpp:reactions:0' id='m-0'/>",
    "a legacy delay": "<x xmlns='jabber:x:delay' stamp='20010101T00:00:00'/>",
    "somebody else's action": "<action-selected xmlns='urn:xmpp:tmp:quick-response' id='buy:42'/>",
    "what nobody knows": "<x xmlns='urn:example:unknown'/>",
}


def _says(stanza: Received) -> bool:
    """Return whether a message is a chat message that does not ask a question."""
    return stanza.head.type == "chat" and stanza.body is not None and "<confirm" not in stanza.xml


@check("confirm.bait", "CNF-044", "CNF-046", features=[CONFIRM], roles=("erase",), alone=True)
async def bait(t: Talk) -> None:
    """A yes to a withdrawn question approves no other one, with or without a thread."""
    for thread in ("", t.new_id()):
        named = {"thread": thread} if thread else {}
        first, _, _ = await asks(t, **named)
        await t.iq("set", Cancel(id=first))
        second, _, confirm = await asks(t, **named)
        await anyio.sleep(_ENOUGH_S)  # a question that was just asked has different rules
        await t.message("yes", thread=thread or None)
        said = await t.quiet(_says, t.timeout)
        where = "in its thread" if thread else "without a thread"
        t.hold("CNF-044", await is_open(t, second), f"the question is open as before ({where})")
        text = "" if said is None else said.body or ""
        ok = "the archive" in text
        t.hold("CNF-046", ok, "a message that names the open question", text or "silence")
        await t.iq("set", decision(confirm, "approve"))
        message, event = await next_event(t, second, *ENDS)
        t.hold("CNF-044", event.state == "completed", "approved by its identifier", message)


@check("confirm.crossing", "CNF-045", features=[CONFIRM], roles=("erase",), alone=True)
async def crossing(t: Talk) -> None:
    """A yes that was sent before the question arrived approves nothing."""
    before = anyio.current_time()
    id_, _, confirm = await asks(t)
    await t.message("yes")
    await t.quiet(_says, t.timeout)
    still = await is_open(t, id_)
    t.need(
        still or anyio.current_time() - before < _STANDS_S,
        "The agent or the server is so slow that the yes may have come late enough.",
    )
    t.hold("CNF-045", still, "the question is open as before")
    await t.iq("set", decision(confirm, "deny"))


@check("confirm.plain", "CNF-025", "CNF-048", features=[CONFIRM], roles=("erase",))
async def plain(t: Talk) -> None:
    """Only a plain message is an answer; elements that clients add to every message do
    not matter.
    """
    id_, message, confirm = await asks(t)
    for what, beside in _BESIDES.items():
        await t.message("yes", thread=id_, extra=beside + _PLAIN)
        t.hold("CNF-048", await is_open(t, id_), f"the question is open as before ({what})")
    chosen = f"<action-selected xmlns='urn:xmpp:tmp:quick-response' id='approve:{confirm.id}'/>"
    await t.message("no", extra=chosen)
    t.hold("CNF-048", await is_open(t, id_), "an action beside a no decides nothing")
    quote = "> May I?\n"
    reply = (
        f"<reply xmlns='urn:xmpp:reply:0' to='{t.target.address}' id='{message.head.id}'/>"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'>"
        f"<body start='0' end='{len(quote)}'/></fallback>"
    )
    await t.message(f"{quote}yes", extra=reply + _PLAIN)
    end, event = await next_event(t, id_, *ENDS)
    t.hold("CNF-025", event.state == "completed", "approved by the reply", end)


@check("confirm.whole", "CNF-049", "CNF-050", "CNF-051", features=[CONFIRM], roles=("erase",))
async def whole(t: Talk) -> None:
    """A person sees the whole question, or a note on what is not shown; or is not asked at all."""
    turned = "the archive \u202egnihton\u202c\u200b"
    long = "the archive " + "x" * 4_988 + "\u20ac"
    for target in (turned, long):
        made = await begin(t, "erase", {"target": target}, mode="auto")
        message = await t.next(asks_about(made.task))
        said = message.body or ""
        if target == turned:
            hidden = [one for one in "\u202e\u202c\u200b" if one in said]
            t.hold("CNF-050", not hidden, "each of these characters made visible", message)
        else:
            size = str(len(target))
            told = long in said or size in said or f"{len(target):,}" in said
            t.hold("CNF-049", told, f"the whole value, or that it has {size} characters", said)
        await t.iq("set", Cancel(id=made.task))
    for target in ("x" * (_MOST_BYTES + 1), "x\n" * (_MOST_LINES + 1)):
        answer = await t.execute("erase", {"target": target})
        t.holds_error("CNF-051", answer, "policy-violation", "too-big")


CHECKS = (bait, crossing, plain, whole)
