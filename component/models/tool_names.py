"""Names of tools, and of what is in the arguments of their calls, as providers take them."""

import re
from collections.abc import Iterable, Mapping

from component.models.tool_schemas import Renamed, translated

_LONGEST = 64
_TAKEN = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{_LONGEST - 1}}}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """Both ways between our names and those that OpenAI and Anthropic take.

    A skill may be called `files.read`; the providers take letters, digits, `_` and `-`, 64 at most,
    and some a letter or `_` at the beginning. Two names never become one, also if one of them is
    only in the conversation and not offered.

    Args:
        names: our names of the tools that are offered.
        renamed: the names in the arguments of tools, by our names; of those that need other ones.
    """

    def __init__(self, names: Iterable[str], renamed: Mapping[str, Renamed] = {}) -> None:
        self._renamed = renamed
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

    def arguments_for(self, name: str, arguments: str) -> str:
        """Translate the arguments of a call of our tool for the model."""
        renamed = self._renamed.get(name)
        return arguments if renamed is None else translated(arguments, renamed, to_ours=False)

    def our_arguments(self, name: str, arguments: str) -> str:
        """Translate the arguments that the model has written for our tool."""
        renamed = self._renamed.get(name)
        return arguments if renamed is None else translated(arguments, renamed, to_ours=True)

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
    plain = _OTHER.sub("_", name)
    return (plain if plain[:1].isalpha() or plain.startswith("_") else f"_{plain}")[:_LONGEST]
