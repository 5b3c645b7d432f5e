"""Reply directives: parts of a model's answer that are for the service and not for the person.

`[[silent]]` sends no answer, `[[delay:5s]]` sends it later (`ms`, `s` or `m`). Anything else in
double brackets is text, and so is everything in code.
"""

import re
from typing import Final

import msgspec

LONGEST_DELAY_S: Final = 3600.0
"""Maximum delay of an answer, in seconds."""

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_CODE_OR_DIRECTIVE: Final = re.compile(
    r"(?P<code>```.*?(?:```|\Z)|`[^`\n]+`)"
    r"|(?P<space>[ \t]*)\[\[\s*(?:(?P<silent>silent)"
    r"|delay\s*:\s*(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<unit>ms|s|m))\s*\]\]",
    re.DOTALL | re.IGNORECASE,
)


class Directed(msgspec.Struct, frozen=True):
    """An answer without its directives; with `silent` it is not sent."""

    text: str
    silent: bool = False
    delay_s: float = 0.0


def directed(answer: str) -> Directed:
    """Remove the directives from an answer. Of several delays the longest counts."""
    if "[[" not in answer:
        return Directed(answer)
    silent, delay_s, found = False, 0.0, False

    def take(match: re.Match[str]) -> str:
        nonlocal silent, delay_s, found
        if match["code"] is not None:
            return match[0]
        found = True
        if match["silent"]:
            silent = True
        else:
            seconds = float(match["number"]) * _UNITS_S[match["unit"].lower()]
            delay_s = max(delay_s, min(seconds, LONGEST_DELAY_S))
        return ""

    text = _CODE_OR_DIRECTIVE.sub(take, answer)
    return Directed(text.strip() if found else answer, silent, delay_s)
