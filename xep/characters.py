"""The characters that XML 1.0 does not allow (§2.2), and texts without them."""

import re
from typing import Final

FORBIDDEN: Final = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
"""As ranges for a character class of `re`."""
forbidden: Final = re.compile(f"[{FORBIDDEN}]")
"""Matches one of them."""


def without_forbidden(text: str) -> str:
    """Return ``text`` with each character that XML does not allow replaced by U+FFFD."""
    return text if text.isprintable() else forbidden.sub("\ufffd", text)


def json_without_forbidden(text: str) -> str:
    """Return JSON text with the same value that XML allows.

    JSON allows U+FFFE and U+FFFF unescaped, XML does not: they are escaped, and so is an unescaped
    control character, which makes the text valid JSON. Half of a surrogate pair is valid in neither
    and becomes U+FFFD.
    """
    return text if text.isprintable() else forbidden.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"
