"""The lines of a session file, and whose session it is.

The file is that of Fluux Agent: a header, then one JSON object a line. Its `message` lines are read
and written as there; `call`, `result`, `summary` and `note` are lines of ours.
"""

from typing import Literal, TypeAlias

import msgspec

from component.policy.taint import Taint
from xep.jid import JID


class SessionKey(msgspec.Struct, frozen=True):
    """Whose conversation: that of an agent with a person or a room.

    `agent` is the localpart of one of ours, or of a sub-agent `parent/id`; `who` a bare JID.
    """

    agent: str
    who: JID


class Header(msgspec.Struct, frozen=True, tag="session", omit_defaults=True):
    """The first line. `created` is a time of RFC 3339, `jid` the other side's."""

    version: int
    created: str
    jid: str


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that came with a message; `size` is written for people, as `926KB`."""

    filename: str
    mime_type: str = "unknown"
    size: str = "unknown"


class Reaction(msgspec.Struct, frozen=True):
    """Emojis under a message (XEP-0444); the line that holds them has no content."""

    message_id: str
    emojis: tuple[str, ...] = ()


class Said(msgspec.Struct, frozen=True, tag="message", omit_defaults=True, kw_only=True):
    """What a person or the agent said.

    `ts` is a time of RFC 3339, `sender` who said it where that is not the agent. `turn` is the
    turn that it belongs to (ours); `final` marks the answer that ends a turn. Tokens and US dollars
    are those of the model call that gave it. `taint` is that of a message; `taints` are those of
    what the model had been shown when it gave this answer.
    """

    role: Literal["user", "assistant"]
    content: str
    msg_id: str | None = None
    sender: str | None = None
    ts: str | None = None
    attachments: tuple[Attachment, ...] = ()
    reaction: Reaction | None = None
    turn: str | None = None
    final: bool = False
    taint: Taint | None = None
    taints: tuple[Taint, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


class Called(msgspec.Struct, frozen=True, tag="call", omit_defaults=True, kw_only=True):
    """A tool that the model has called; `round` counts its answers within the turn, from 0.

    `text` is what the model said beside its calls: it stands in the first of the round.
    """

    turn: str
    round: int
    id: str
    name: str
    arguments: str
    text: str = ""
    ts: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


class Resulted(msgspec.Struct, frozen=True, tag="result", omit_defaults=True, kw_only=True):
    """What came of a call. `task` is the one it waits for, while `content` is no result yet.

    A later line of the same call counts instead of an earlier one.
    """

    turn: str
    id: str
    content: str
    is_error: bool = False
    taint: Taint | None = None
    task: str | None = None
    ts: str | None = None


class Summary(msgspec.Struct, frozen=True, tag="summary", omit_defaults=True, kw_only=True):
    """Stands for everything above it but the last `kept` lines before it, and has its `taints`."""

    content: str
    kept: int = 0
    taints: tuple[Taint, ...] = ()
    ts: str | None = None


class Note(msgspec.Struct, frozen=True, tag="note", omit_defaults=True, kw_only=True):
    """Something that happened, for the model to know of: an interruption, a late result."""

    content: str
    turn: str | None = None
    ts: str | None = None


Line: TypeAlias = Said | Called | Resulted | Summary | Note
