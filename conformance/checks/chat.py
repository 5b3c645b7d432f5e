"""Faces for Other Clients: Chat; Business Rules and Internationalization of messages."""

from conformance.model import Ability, check
from conformance.post import Where
from conformance.stanzas import CLIENT, LANG, Received
from conformance.talk import SILENCE, Talk
from xep.fluux_agent import NAMESPACE as AGENT

_LANGUAGES = ("en", "de", "fr", "es", "zh")
_DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2001-01-01T00:00:00Z'/>"


def _said_to(address: str) -> Where:
    """Match a message to `address` that has a body and is not an event of a task.

    A message may contain more than its body: additions of the agent, or of a server on the way.
    """

    def where(stanza: Received) -> bool:
        head = stanza.head
        mine = head.to in (address, address.partition("/")[0])
        told = any(name.startswith(f"{{{AGENT}") for name in head.payload_names)
        return head.kind == "message" and mine and stanza.body is not None and not told

    return where


def _says(t: Talk, sender: str, thread: str | None = None) -> Where:
    """Return a condition for chat messages to ``sender``."""

    def where(stanza: Received) -> bool:
        to = stanza.head.to or ""
        mine = to in (sender, sender.partition("/")[0])
        said = stanza.head.kind == "message" and stanza.body is not None
        return mine and said and (thread is None or stanza.thread == thread)

    return where


def _answers(t: Talk, thread: str) -> Where:
    """Return a condition for messages to the sender of the last one, or in its thread."""

    def where(stanza: Received) -> bool:
        mine = stanza.head.to == t.who.caller or stanza.thread == thread
        return stanza.head.kind == "message" and mine

    return where


@check("chat.help", "FAC-010")
async def help_(t: Talk) -> None:
    """The command /help is answered with what the agent understands."""
    thread = t.new_id()
    await t.message("/help", thread=thread)
    said = await t.quiet(_says(t, t.who.caller, thread), t.timeout)
    t.hold("FAC-010", said is not None, "an answer in words to /help", said or "silence")


@check("chat.place", "FAC-011")
async def place(t: Talk) -> None:
    """An answer comes from the address that was written to, in the thread and with the type."""
    addresses = [t.target.address]
    if t.target.address != t.target.domain:
        addresses.append(t.target.domain)
    await t.message("/help", thread=t.new_id())
    while await t.quiet(_said_to(t.who.caller)) is not None:
        pass  # an agent may tell each person once that it is a machine; that is not the answer
    for type_ in ("chat", "normal"):
        for address in addresses:
            thread = t.new_id()
            await t.message("/help", thread=thread, type_=type_, to=address)
            said = await t.next(_said_to(t.who.caller))
            ok = (said.head.sender or "").partition("/")[0] == address
            t.hold("FAC-011", ok, f"an answer from {address}", said)
            t.hold("FAC-011", said.thread == thread, f"the thread {thread}", said)
            t.hold("FAC-011", said.head.type == type_, f"a message of type {type_}", said)


@check("chat.delayed", "FAC-014")
async def delayed(t: Talk) -> None:
    """A message that was delayed for long has no effect."""
    thread = t.new_id()
    await t.message("/help", thread=thread)
    help_ = await t.next(_says(t, t.who.caller, thread))
    thread = t.new_id()
    await t.message("/help", thread=thread, extra=_DELAY)
    said = await t.quiet(_says(t, t.who.caller, thread))
    ok = said is None or said.body != help_.body
    t.hold("FAC-014", ok, "no help: the message is from 2001", said or "")


@check("chat.silence", "FAC-015", "EVT-011")
async def silence(t: Talk) -> None:
    """Automatic messages and errors are not answered, so that no exchange continues for ever."""
    for type_, id_ in (("headline", "FAC-015"), ("error", "EVT-011"), ("groupchat", "FAC-015")):
        thread = t.new_id()
        extra = ""
        if type_ == "error":
            extra = (
                "<error type='cancel'><service-unavailable"
                " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
            )
        await t.message("/help", thread=thread, type_=type_, extra=extra)
        said = await t.quiet(_answers(t, thread))
        t.hold(id_, said is None, f"silence to a message of type {type_}", said or "")


def _told(address: str) -> Where:
    """Return a condition for messages and presence to one of our accounts."""
    bare = address.partition("/")[0]
    return lambda stanza: (stanza.head.to or "").partition("/")[0] == bare


@check("chat.stop", "FAC-012", needs=[Ability.STRANGER], alone=True)
async def stop(t: Talk) -> None:
    """After /stop-contact a person gets only answers to their own requests."""
    begun = t.target.serves("task") and t.skill("sleep").name in t.target.offered
    if begun:
        slow = await t.execute("sleep", {"seconds": "1.2"}, sender=t.stranger, mode="async")
        t.need(not slow.is_error, f"No task could be begun: {slow.xml[:300]}")
    await t.message("/stop-contact", sender=t.stranger)
    await t.quiet(_says(t, t.stranger))
    while await t.quiet(_told(t.stranger), 0.2) is not None:
        pass  # sent before it took effect
    answer = await t.iq("get", "<query xmlns='urn:fluux:agent:0#skills'/>", sender=t.stranger)
    t.hold("FAC-012", not answer.is_error, "requests are answered as before", answer)
    # Nor about work that began before: the end of the task would have been sent by now.
    came = await t.quiet(_told(t.stranger), 1.5 if begun else SILENCE)
    t.hold("FAC-012", came is None, "nothing that was not asked for", came or "")


@check("chat.hints", "RUL-009")
async def hints(t: Talk) -> None:
    """Processing hints in a message do not change the answer."""
    names = ("no-store", "no-copy", "no-permanent-store")
    marks = "".join(f"<{name} xmlns='urn:xmpp:hints'/>" for name in names)
    told: list[Received | None] = []
    for extra in ("", marks):
        thread = t.new_id()
        await t.message("/help", thread=thread, extra=extra)
        told.append(await t.quiet(_says(t, t.who.caller, thread), t.timeout))
        if told == [None]:
            t.hold("RUL-009", True, "it answers nothing, with hints or without")
            return
    plain, marked = told
    same = plain is not None and marked is not None and plain.body == marked.body
    t.hold("RUL-009", same, "the same answer as without hints", marked or "silence")


def _lang(message: Received) -> str | None:
    """Return the language of a message's body, without its region."""
    body = message.tree.find(f"{CLIENT}body")
    lang = None if body is None else body.get(LANG, message.tree.get(LANG))
    return None if lang is None else lang.lower().partition("-")[0]


@check("i18n.language", "I18-003")
async def language(t: Talk) -> None:
    """A message in a language that the agent supports is answered in it."""
    spoken: dict[str, tuple[str | None, Received]] = {}
    for lang in _LANGUAGES:
        thread = t.new_id()
        await t.message("/help", thread=thread, lang=lang)
        told = await t.quiet(_says(t, t.who.caller, thread), t.timeout)
        if told is None:
            break
        spoken[lang] = (_lang(told), told)
    known = {lang for lang, _ in spoken.values()}
    t.hold("I18-003", True, "it was not seen to know a language and use another")
    for asked, (used, told) in spoken.items():
        ok = asked not in known or used in (asked, None)
        t.hold("I18-003", ok, f"{asked}: it has answered in it to somebody else", told)


CHECKS = (help_, place, delayed, silence, stop, hints, language)
