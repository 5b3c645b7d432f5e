"""The secrets of Standard Webhooks (https://www.standardwebhooks.com)."""

import base64
import binascii
from typing import Final

_KEY_BYTES: Final = range(24, 65)
"""The allowed lengths of a secret, in bytes."""
_PREFIX: Final = "whsec_"


def standard_key(secret: str) -> bytes | None:
    """Return the bytes of a secret of Standard Webhooks: base64, after `whsec_`; None if the text
    is not one.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) in _KEY_BYTES else None
