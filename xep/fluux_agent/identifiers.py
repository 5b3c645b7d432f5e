"""Identifiers of tasks, requests, contexts, confirmations and questions (COM-017)."""

import re
from typing import Final

from xep.fluux_agent import errors

_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")


def check_identifier(element: str, attribute: str, text: str) -> None:
    """Raise StanzaError, `malformed` with the place, unless the text is an identifier."""
    if _IDENTIFIER.fullmatch(text) is None:
        raise errors.malformed(
            f"{element}: {attribute} must be 1 to 128 of the characters A-Z, a-z, 0-9, '.', '_',"
            " '~' and '-'"
        )
