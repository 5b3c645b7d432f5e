"""The answer of a turn while the model writes it: drafts that the answer corrects (XEP-0308).

The first draft is a message that no archive stores, the next ones correct it at a bounded pace, and
so does the answer itself, which is archived. The id of the first draft follows from the turn, so
that the answer of a turn that was interrupted by the end of this process corrects it, too.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from component.agent.completions import directed
from component.agent.protocol import Voice
from component.agent.requests import TurnRequest, reply_to
from component.models.protocol import Void
from component.system import monotonic, token_hex

FIRST_S: Final = 2.0
"""Seconds from the beginning of an answer to the first draft."""
NEXT_S: Final = 3.0
"""Seconds from one draft to the next one."""
_LONGEST: Final = 4_000
"""Maximum number of characters of a draft; a longer text is shown when it is complete."""
_UNFINISHED: Final = r"(?:\[\[[^\]\n]*|<[^<>\n]*|(?:\A|\s)\S*)\Z"
"""The end of a text that may be the beginning of a directive, a tag or a word."""
_MORE: Final = " …"


def draft_id(turn: str) -> str:
    """Return the id of the first draft of a turn, which the answer corrects."""
    return f"{turn}.draft"


class Draft:
    """The answer of a turn that runs, as far as it is written.

    Args:
        begun: called when the first draft was sent.
    """

    def __init__(self, request: TurnRequest, voice: Voice, begun: Callable[[], None]) -> None:
        self._request = request
        self._voice = voice
        self._begun = begun
        self._is_sent = request.drafted
        self._due = 0.0
        self._before = ""
        self._written: list[str] = []
        self._clean: Callable[[str], str] = str

    def begin(self, before: str, clean: Callable[[str], str]) -> None:
        """Note that the model begins to write, after the text `before` of an answer that was cut
        off. `clean` removes from a text what the person must not see.
        """
        self._before, self._clean = before, clean
        self._written = []
        self._due = max(self._due, monotonic() + (NEXT_S if self._is_sent else FIRST_S))

    def wrote(self, piece: str | Void) -> None:
        """Take a piece of the text, and send a draft if one is due. Never waits."""
        if isinstance(piece, Void):
            self._written = []
            return
        self._written.append(piece)
        if monotonic() < self._due:
            return
        self._due = monotonic() + NEXT_S
        text = self._shown()
        if text:
            self._send(text)

    def _send(self, text: str) -> None:
        first = draft_id(self._request.id)
        reply = reply_to(self._request, "draft", text)
        assert reply is not None, "somebody gets the answer"
        if self._is_sent:
            reply = msgspec.structs.replace(reply, id=f"{first}-{token_hex(4)}", corrects=first)
        if self._voice.draft(reply) and not self._is_sent:
            self._is_sent = True
            self._begun()

    def _shown(self) -> str:
        """Return the text so far, up to its last whole word; empty if it must not be shown."""
        text = self._before + "".join(self._written)
        if len(text) > _LONGEST:
            return ""
        text = re.sub(_UNFINISHED, "", self._clean(text))
        said = directed(text)
        if said.silent or said.delay_s or not said.text.strip():
            return ""
        return said.text.rstrip() + _MORE
