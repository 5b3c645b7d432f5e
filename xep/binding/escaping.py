"""Character data and attribute values, escaped; what XML 1.0 cannot carry becomes U+FFFD.

Everything that is sent passes here, so this is the one place where a text is made fit for the
wire: no value, wherever it comes from, can make a stanza that cannot be sent.
"""

import re

from xep.characters import FORBIDDEN
from xep.characters import without_forbidden as without_forbidden  # noqa: PLC0414 - for importers

# The first character that cannot stand as it is; None for nearly every text or value there is.
text_special = re.compile(f"[&<>\r{FORBIDDEN}]").search
attribute_special = re.compile(f"[&<>'\"\t\r\n{FORBIDDEN}]").search
_TEXT = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}
_ATTRIBUTE = _TEXT | {ord("'"): "&apos;", ord('"'): "&quot;", ord("\t"): "&#9;", ord("\n"): "&#10;"}


def escape_text(text: str) -> str:
    """``text`` as character data that any XML parser reads back as `without_forbidden` has it."""
    if text_special(text) is None:
        return text
    return without_forbidden(text).translate(_TEXT)


def escape_attribute(text: str) -> str:
    """``text`` as an attribute value between single quotes, read back as `escape_text` is."""
    if attribute_special(text) is None:
        return text
    return without_forbidden(text).translate(_ATTRIBUTE)
