"""HTTP header fields in settings."""

import re
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from component.settings.kinds import refusal

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|")


def _usable(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, content in value.items():
        if not _NAME.fullmatch(name):
            raise refusal(f"has {name!r}, which is not the name of a header field")
        if not _VALUE.fullmatch(content.get_secret_value()):
            raise refusal(f"has a value for {name} that a header field cannot have")
    return value


Headers = Annotated[dict[str, SecretStr], AfterValidator(_usable)]
"""Names and values of header fields. The values may be secret."""
