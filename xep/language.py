"""Language tags (BCP 47, RFC 5646), as in ``xml:lang``."""

import re
from functools import lru_cache
from typing import Final

MAX_LENGTH: Final = 64
"""The maximum length of a tag; RFC 5646 §4.4.1 requires at least 35."""

# The syntax of RFC 5646 §2.1. Tags that were registered before it and do not follow it
# (`i-klingon`, `en-GB-oed`, …) have had preferred forms for twenty years.
_TAG: Final = r"""(?xia)(?:
        (?:[a-z]{2,3}(?:-[a-z]{3}){0,3} | [a-z]{4,8})   # language
        (?:-[a-z]{4})?                                  # script
        (?:-(?:[a-z]{2}|[0-9]{3}))?                     # region
        (?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*        # variants
        (?:-[0-9a-wy-z](?:-[a-z0-9]{2,8})+)*            # extensions
        (?:-x(?:-[a-z0-9]{1,8})+)?                      # private use
      | x(?:-[a-z0-9]{1,8})+
    )"""


def language_tag(text: str | None) -> str | None:
    """Return ``text`` if it is a well-formed language tag of at most 64 characters, otherwise None.

    For input: a tag is a hint, so a malformed one is ignored. The tag is returned unchanged; RFC
    5646 §2.1.1 compares tags without regard to case.
    """
    return None if text is None or len(text) > MAX_LENGTH else _well_formed(text)


@lru_cache(maxsize=256)
def _well_formed(text: str) -> str | None:
    return text if re.fullmatch(_TAG, text) else None
