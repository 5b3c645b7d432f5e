"""The texts of the prompt other than the conversation.

The instructions come first and are the same throughout a session, so that providers and local
models can cache them. Texts that change, such as the time, come with each message.
"""

import hashlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from component.agent.fences import Fence
from component.agent.profile import Profile
from component.agent.requests import TurnRequest
from component.zones import is_offset, zone_named
from xep.jid import JID

_IDENTITY: Final = "You are {title}, an assistant that people talk with in a chat (XMPP)."
_PERSONALITY: Final = (
    "You are friendly, direct and honest. You answer in a few short sentences, as one does in a"
    " chat, and at greater length only when that is asked for. You write plain text, without"
    " headings or tables. You answer in the language of the person."
)
_INSTRUCTIONS: Final = (
    "Use tools when they help; do not invent what a tool could tell you, nor say that you did"
    " something that no tool has done. If a tool fails, say so plainly or try another way. If you"
    " do not know something, say that. Ask back when it is unclear what is wanted. Some calls"
    " wait for a decision of the person, who is then asked without your help: do not ask again."
    " Calls in one answer are made at the same time; make a call that needs the result of another"
    " in a later answer."
)
_DIRECTIVES: Final = (
    "If there is nothing to say (a mere thank-you, say), answer [[silent]], and nothing is sent."
    " [[delay:30s]] in an answer sends it that much later (ms, s or m, an hour at most)."
)

NO_MORE_TOOLS: Final = (
    "You cannot call tools any more in this turn. Answer the person now with what you have, and"
    " say what is missing."
)
EMPTY: Final = "Your answer was empty. Answer the person in words, or write [[silent]]."
REASONED: Final = (
    "Your reasoning used all the tokens of the answer, so there was none. Answer the person now, in"
    " words or with a tool call, with very little reasoning."
)
UNREAD_CALL: Final = (
    "Your tool call was written into the text in a form that cannot be read, or it names no tool"
    " that you have. Nothing was called, and the person has seen nothing of it. Make the call again"
    " as a tool call, or answer the person in words."
)
CUT_CALLS: Final = (
    "Your answer was cut off in the middle of a tool call, so nothing was called. Make the call"
    " again, with shorter arguments if they are long, or answer in words."
)
CONTINUE: Final = (
    "Your answer was cut off because it was too long. Go on exactly where it ends, briefly, and"
    " come to an end. Repeat nothing."
)


_CONTEXT: Final = (
    "The lines in square brackets before a message are from this service, and not from the person."
)
_NO_NOTES: Final = "[There are no notes on the person any more.]"
NO_NOTES: Final = "-"
"""The digest of no notes."""


def instructions(profile: Profile, fence: Fence, who: JID) -> str:
    """Return the first message of the prompt. `who` is the other party of the conversation."""
    title = profile.title or profile.agent
    parts = [
        profile.identity.strip() or _IDENTITY.format(title=title),
        profile.personality.strip() or _PERSONALITY,
        profile.instructions.strip() or _INSTRUCTIONS,
        _DIRECTIVES,
    ]
    if profile.context.strip():
        parts += ["What you know of your field:", profile.context.strip()]
    parts.append(fence.explained())
    parts.append(f"Your name is {title}. You talk with {fence.value(str(who))}. {_CONTEXT}")
    return "\n\n".join(parts)


def context(profile: Profile, fence: Fence, request: TurnRequest, now: datetime) -> str:
    """Return the context before each message: the time, the kind of sender, and the language."""
    said = f"It is {spoken_time(now, profile.zone)}."
    # The taint of a sub-agent's request depends on everything its parent has read, and does not
    # say who the sender is.
    if request.taint == "peer" and not profile.above:
        said += " This message is from another agent."
    if request.language:
        said += f" The language of the client is {fence.value(request.language)}."
    return f"[{said}]"


def notes(profile: Profile, fence: Fence) -> str:
    """Return the notes on the person for the prompt, which has them whenever they have changed."""
    parts = []
    if profile.user.strip():
        parts += ["[About the person:]", fence.around(profile.user.strip(), "our notes")]
    if profile.memory.strip():
        parts += ["[Notes on the person:]", fence.around(profile.memory.strip(), "our notes")]
    return "\n".join(parts) or _NO_NOTES


def notes_digest(profile: Profile) -> str:
    """Return a digest that detects changed notes."""
    said = (profile.user.strip(), profile.memory.strip())
    if not any(said):
        return NO_NOTES
    data = "\0".join(said).encode(errors="surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def spoken_time(now: datetime, zone: str) -> str:
    """Return a time in the form that the prompt uses: that of the person's clock, with the name of
    the time zone, and UTC.
    """
    utc = f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    where = zone_named(zone)
    if where is None or zone == "UTC":
        return f"{now.astimezone(UTC):%A}, {utc}"
    local = now.astimezone(where)
    offset = "" if is_offset(zone) else f", {timezone(local.utcoffset() or timedelta())}"
    return f"{local:%A}, {local:%Y-%m-%d %H:%M} for the person (time zone {zone}{offset}; {utc})"
