"""Escapes character data and attribute values; characters that XML 1.0 does not allow become
U+FFFD.

All output passes through this module, so it is the one place that makes a text valid: no value can
make a stanza that cannot be sent.
"""

import re

from xep.characters import FORBIDDEN
from xep.characters import without_forbidden as without_forbidden  # noqa: PLC0414 - for importers

# Matches the first character that needs escaping; nearly always there is none.
text_special = re.compile(f"[&<>\r{FORBIDDEN}]").search
attribute_special = re.compile(f"[&<>'\"\t\r\n{FORBIDDEN}]").search
_TEXT = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}
_ATTRIBUTE = _TEXT | {ord("'"): "&apos;", ord('"'): "&quot;", ord("\t"): "&#9;", ord("\n"): "&#10;"}


def escape_text(text: str) -> str:
    """Return ``text`` as character data that any XML parser reads back as `without_forbidden` of
    it.
    """
    if text_special(text) is None:
        return text
    return without_forbidden(text).translate(_TEXT)


def escape_attribute(text: str) -> str:
    """Return ``text`` as an attribute value for single quotes, read back as by `escape_text`."""
    if attribute_special(text) is None:
        return text
    return without_forbidden(text).translate(_ATTRIBUTE)


def unescape_attribute(text: str) -> str:
    """The value that `escape_attribute` has written as ``text``."""
    for character, reference in reversed(_ATTRIBUTE.items()):  # `&amp;` is the first there
        text = text.replace(reference, chr(character))
    return text
