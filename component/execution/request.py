"""A request to execute a skill, as it passes through admission."""

from component.skills import Skill
from component.skills.inputs import Arguments
from component.tasks.protocol import Asker, CallerContext, Confirmation, OnResult, Origin
from component.tasks.request_keys import (
    RequestKey,
    key_in_memory,
    name_digest,
    named_key,
    unnamed_key,
)
from component.tasks.skill_call import SkillCall
from xep.jid import JID

_SESSION = "session "
"""An identifier of a caller never contains a space, so it cannot equal one of a session."""


class SkillRequest:
    """A request to execute a skill, and what admission finds out about it.

    Args:
        requester: the full address of the sender.
        principal: its bare address.
        target: the address of the component that received the request.
        call: what it asks for.
        stanza_id: the id of its IQ, which identifies repetitions for a while if the request has no
            name.
        session: names a request that has no IQ of its own: the session of a command (FAC-006), or
            a turn and the number of a model's call in it.
        size: its approximate size in bytes; computed if it is not known.
        origin: the kind of caller.
        lang: its language.
        caller_context: which agent runs the skill and for whom, if that is not the agent at
            `target` for its caller.
        on_result: see `component.tasks.protocol.Call`.

    Attributes:
        name: the name that identifies repetitions; None if there is only the id of its IQ.
        asker: who wants the skill to run.
        skill: the skill, once it is known that the principal may use it.
        key: the key that identifies repetitions.
        arguments: the parameters as the skill takes them.
        may_ask: whether a confirmation may be needed.
        confirmation: who has to confirm it, if anybody.
        undecided: whether that is determined only after the request is accepted.
    """

    __slots__ = (
        *(
            "arguments",
            "asker",
            "caller_context",
            "confirmation",
            "call",
            "key",
            "lang",
            "on_result",
        ),
        *("origin", "principal", "requester", "name", "size", "skill", "stanza_id", "target"),
        *("may_ask", "undecided"),
    )

    skill: Skill
    may_ask: bool
    key: RequestKey
    arguments: Arguments

    def __init__(
        self,
        requester: JID,
        principal: JID,
        target: JID,
        call: SkillCall,
        *,
        stanza_id: str = "",
        session: str | None = None,
        size: int = 0,
        origin: Origin = "iq",
        lang: str | None = None,
        caller_context: CallerContext | None = None,
        on_result: OnResult | None = None,
    ) -> None:
        self.requester = requester
        self.principal = principal
        self.target = target
        self.call = call
        self.stanza_id = stanza_id
        self.name = call.request if session is None else _SESSION + session
        self.size = size or call.size
        self.origin: Origin = origin
        self.lang = lang
        self.caller_context = caller_context
        self.asker: Asker = "caller" if caller_context is None else caller_context.asker
        self.on_result = on_result
        self.confirmation: Confirmation | None = None
        self.undecided = False

    @property
    def runs_at_once(self) -> bool:
        """Whether it runs without a task, a record on disk, or a confirmation."""
        return not self.may_ask and self.skill.at_once and self.call.mode != "async"

    def compute_key(self) -> RequestKey:
        """Return the key that identifies repetitions; a hash over the whole content."""
        name = self.name
        if name is None:
            return unnamed_key(self.requester, self.target, self.stanza_id, self.call)
        return named_key(self.requester, self.target, name, self.call)

    def compute_key_in_memory(self) -> RequestKey:
        """Return the key of a request without a name that leaves no record on disk."""
        return key_in_memory(self.requester, self.target, self.stanza_id, self.call, self.size)


def session_key(requester: JID, target: JID, session: str) -> str:
    """Return the text of the key of a request in a session."""
    return name_digest(requester, target, _SESSION + session)
