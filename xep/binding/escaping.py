"""Character data and attribute values, escaped; what XML 1.0 cannot carry is refused."""

import re

from xep.binding.errors import EncodingError

_FORBIDDEN = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_forbidden = re.compile(f"[{_FORBIDDEN}]")
# The first character that cannot stand as it is; None for nearly every text or value there is.
text_special = re.compile(f"[&<>\r{_FORBIDDEN}]").search
attribute_special = re.compile(f"[&<>'\"\t\r\n{_FORBIDDEN}]").search
_TEXT = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}
_ATTRIBUTE = _TEXT | {ord("'"): "&apos;", ord('"'): "&quot;", ord("\t"): "&#9;", ord("\n"): "&#10;"}


def escape_text(text: str) -> str:
    """``text`` as character data that any XML parser reads back unchanged.

    Raises:
        EncodingError: it holds a character that XML 1.0 §2.2 does not allow.
    """
    if text_special(text) is None:
        return text
    _refuse_forbidden(text)
    return text.translate(_TEXT)


def escape_attribute(text: str) -> str:
    """``text`` as an attribute value between single quotes, read back unchanged.

    Raises:
        EncodingError: it holds a character that XML 1.0 §2.2 does not allow.
    """
    if attribute_special(text) is None:
        return text
    _refuse_forbidden(text)
    return text.translate(_ATTRIBUTE)


def without_forbidden(text: str) -> str:
    """``text`` with each character that XML cannot carry replaced by U+FFFD."""
    return _forbidden.sub("\ufffd", text)


def _refuse_forbidden(text: str) -> None:
    found = _forbidden.search(text)
    if found is not None:
        raise EncodingError(
            f"XML cannot carry U+{ord(found.group()):04X}, found at position {found.start()}"
        )
