"""What stands before the conversation: who the model is, how it speaks, what it knows."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from component.agent.fences import Fence
from component.agent.profile import Profile
from component.agent.protocol import Incoming, Recalled

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
CUT_CALLS: Final = (
    "Your answer was too long and was cut off in the middle of a tool call, so nothing was called."
    " Use shorter arguments, or answer in words."
)
CONTINUE: Final = (
    "Your answer was cut off because it was too long. Go on exactly where it ends, briefly, and"
    " come to an end. Repeat nothing."
)


def instructions(
    profile: Profile,
    fence: Fence,
    incoming: Incoming,
    recalled: Sequence[Recalled],
    now: datetime,
    scan: Callable[[str], str | None],
) -> str:
    """The first message of the prompt.

    What changes from turn to turn stands at its end: the word of the fences, memories, the time.
    What is before that, a provider or a local model need not read again.
    """
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
    if profile.user.strip():
        parts += ["What is known of the person:", fence.around(profile.user.strip(), "our notes")]
    if profile.memory.strip():
        parts += ["Notes on the person:", fence.around(profile.memory.strip(), "our notes")]
    if recalled:
        parts.append("Memories that may bear on this message, if they do:")
        parts += [_memory(one, fence, scan) for one in recalled]
    lang = incoming.lang
    language = f" Their client's language is {fence.value(lang)}." if lang else ""
    # A sub-agent has the label of all that it is told; whom it works for stays the same.
    peer = ", another agent" if incoming.taint == "peer" and not profile.above else ""
    parts.append(
        f"Your name is {title}. You talk with {fence.value(str(incoming.principal))}"
        f"{peer}.{language}"
        f" It is {now:%A}, {now:%Y-%m-%d %H:%M} UTC."
    )
    return "\n\n".join(parts)


def _memory(one: Recalled, fence: Fence, scan: Callable[[str], str | None]) -> str:
    text = "\n".join(part for part in (one.title, one.body) if part)
    return fence.around(text, one.taint or "our memory", scan(text))
