"""The characters that XML 1.0 cannot carry (§2.2), and texts without them."""

import re
from typing import Final

FORBIDDEN: Final = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
"""As ranges for a character class of `re`."""
forbidden: Final = re.compile(f"[{FORBIDDEN}]")
"""One of them."""


def without_forbidden(text: str) -> str:
    """``text`` with each character that XML cannot carry replaced by U+FFFD."""
    return text if text.isprintable() else forbidden.sub("\ufffd", text)


def json_without_forbidden(text: str) -> str:
    """JSON text that XML can carry and that has the same value.

    JSON allows U+FFFE and U+FFFF unescaped, XML does not allow them: they are written as escapes,
    and so is an unescaped control character, which makes the text valid JSON. Half of a surrogate
    pair has no valid form in either and becomes U+FFFD.
    """
    return text if text.isprintable() else forbidden.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"
