"""Parts of artifacts that a peer sends before its task ends, which our task reports as its own.

A peer counts the parts of each artifact, and its answer to `get` has all of them in one. So parts
that come again, or out of order, or were lost with an event, are noticed by their numbers
(ART-001, ART-003). Our parts have numbers of their own: one may be several parts of the peer.

A peer that does not keep to that is believed no further: the artifact that it has contradicted gets
no more parts. The result says in the end what the artifact is.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import structlog

from component.skills.foreign_texts import line
from xep.fluux_agent.execute import Output

_log = structlog.get_logger("component.features.peers")

_LONGEST_NAME: Final = 200
_PER_PART: Final = 200
"""Approximate bytes of a part beside its text."""
_NO_MORE: Final = -1


class Received(msgspec.Struct):
    """What has been received of the artifacts of one call, and what our task has published.

    Attributes:
        next: by the name of an artifact, the number that the peer's next part has.
        published: the parts that our task has published, in order.
        most_bytes: how much the peer may send.
    """

    next: dict[str, int]
    published: list[Output]
    most_bytes: int

    def take(self, parts: Iterable[Output], *, joined: bool = False) -> tuple[list[Output], bool]:
        """Return our parts for those of the peer, and whether parts in between are missing.

        `joined` says that each part has the text of all before it, as in the answer to `get`.
        """
        made: list[Output] = []
        is_missing = False
        for part in parts:
            number, expected = part.part or 0, self.next.get(part.name, 0)
            if expected == _NO_MORE or number < expected:
                continue
            if number > expected and not joined:
                is_missing = True
                continue
            text = self._rest(part) if joined else part.text
            if text is None or not self._is_acceptable(part):
                self.next[part.name] = _NO_MORE
                _log.warning("ignored a part of an artifact of a peer", part=line(part.name, 80))
                continue
            self.next[part.name] = number + 1
            self._publish(made, part, text, last=part.last)
        return made, is_missing

    def end(self, outputs: Sequence[Output]) -> list[Output]:
        """Return our last parts of artifacts that are whole in a result: the parts before may have
        been lost.
        """
        made: list[Output] = []
        for output in outputs:
            ours = self._ours(output.name)
            if ours and not ours[-1].last and output.file is None:
                text = self._rest(output)
                if text is not None and self._is_acceptable(output):
                    self._publish(made, output, text, last=True)
        return made

    def _publish(self, made: list[Output], part: Output, text: str, *, last: bool) -> None:
        """Add a part, to the one before it if both are of one artifact."""
        if made and made[-1].name == part.name:
            self.published.pop()
            new = msgspec.structs.replace(made.pop(), last=last)
            new = msgspec.structs.replace(new, text=new.text + text)
        else:
            number = len(self._ours(part.name))
            new = Output(name=part.name, type=part.type, part=number, last=last, text=text)
        made.append(new)
        self.published.append(new)

    def _ours(self, name: str) -> Sequence[Output]:
        return [one for one in self.published if one.name == name]

    def _rest(self, whole: Output) -> str | None:
        """Return what is new in the text of an artifact; None if that contradicts its parts."""
        before = "".join(one.text for one in self._ours(whole.name))
        return whole.text[len(before) :] if whole.text.startswith(before) else None

    def _is_acceptable(self, part: Output) -> bool:
        ours = self._ours(part.name)
        size = sum(len(one.text.encode()) + _PER_PART for one in self.published)
        return (
            part.file is None  # the result has it
            and len(part.name) <= _LONGEST_NAME
            and len(part.type) <= _LONGEST_NAME
            and size + len(part.text.encode()) + _PER_PART <= self.most_bytes
            and not (ours and (ours[-1].last or ours[0].type != part.type))
        )
