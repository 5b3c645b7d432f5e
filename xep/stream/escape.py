"""Escapes text for XML, and replaces characters that XML does not allow."""

import re
from typing import Final

_ESCAPES: Final = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord("'"): "&apos;",
    ord('"'): "&quot;",
    # A parser turns these into spaces inside an attribute unless they are references.
    ord("\t"): "&#9;",
    ord("\n"): "&#10;",
    ord("\r"): "&#13;",
}
_ILLEGAL: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """Escape `text` for an attribute in either quotes or for character data.

    A character that XML 1.0 does not allow (§2.2: most controls, surrogates, U+FFFE, U+FFFF)
    becomes U+FFFD, so that no text can make a stream ill-formed.
    """
    return _ILLEGAL.sub("\ufffd", text).translate(_ESCAPES)
