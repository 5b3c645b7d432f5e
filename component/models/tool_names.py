"""Names of tools as providers take them."""

import re
from collections.abc import Iterable

_LONGEST = 64
_TAKEN = re.compile(rf"[A-Za-z0-9_-]{{1,{_LONGEST}}}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """Both ways between our names and those that OpenAI and Anthropic take.

    A skill may be called `files.read`; the providers take letters, digits, `_` and `-`, 64 at most.
    Two names never become one, also if one of them is only in the conversation and not offered.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        others = []
        for name in names:
            if _TAKEN.fullmatch(name):
                self._theirs[name] = self._ours[name] = name
            else:
                others.append(name)
        for name in others:
            self._add(name)

    def theirs(self, name: str) -> str:
        """Return the provider's name of a tool, also of one that is not offered any more."""
        return self._theirs.get(name) or self._add(name)

    def ours(self, name: str) -> str:
        """Return our name of a tool; unknown names are unchanged."""
        return self._ours.get(name, name)

    def _add(self, name: str) -> str:
        plain = safe = _plain(name)
        number = 2
        while safe in self._ours:
            safe = f"{plain[: _LONGEST - 1 - len(str(number))]}_{number}"
            number += 1
        self._theirs[name] = safe
        self._ours[safe] = name
        return safe


def _plain(name: str) -> str:
    return _OTHER.sub("_", name)[:_LONGEST] or "_"
