"""How the caller follows a request, and which agent made it: a part of the task's row."""

from typing import Final

import msgspec

from component.tasks.protocol import CallerContext, Origin


class Followed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the caller follows a request: everything that notices and questions need of it.

    `thread` is the one that the caller named, `lang` the language of the request. `caller_context`
    is stored under the name `hand`.
    """

    thread: str | None = None
    origin: Origin = "iq"
    lang: str | None = None
    caller_context: CallerContext = msgspec.field(default=CallerContext(""), name="hand")

    @property
    def conversational(self) -> bool:
        """Whether a person follows it in a conversation (specification, "Events")."""
        return bool(self.thread) or self.origin != "iq"


followed: Final = msgspec.json.Decoder(Followed).decode
"""Decodes it from the JSON of a request, and skips the parameters, which can be large."""
