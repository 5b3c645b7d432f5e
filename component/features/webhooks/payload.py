"""Reads the JSON of a delivery, within bounds."""

from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from component.features.webhooks.errors import WebhookError

_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
_FORM_FIELD: Final = "payload"


def is_readable(content_type: str, *, forms: bool) -> bool:
    """Whether a body of this media type can be read; `forms` says that GitHub's forms can."""
    media_type = _media_type(content_type)
    is_json = media_type == _JSON or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    return is_json or (forms and media_type == _FORM)


def read_json(content_type: str, body: bytes, max_depth: int) -> Any:
    """The value of a body. GitHub can send JSON as the field `payload` of a form.

    Raises WebhookError (400): it is no JSON in UTF-8, or is nested too deeply.
    """
    text: bytes | str = body
    if _media_type(content_type) == _FORM:
        text = _field(body)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep(max_depth) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WebhookError(
            400,
            "The body is not JSON in UTF-8.",
            f"the sender signs what cannot be read ({error}): have it send JSON",
        ) from None
    if _is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    return value


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _field(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("ascii"), errors="strict", max_num_fields=2)
        (found,) = fields[_FORM_FIELD]
    except (ValueError, KeyError):
        raise WebhookError(
            400,
            "The form does not have exactly one field payload.",
            "set the content type of the webhook at the sender to application/json",
        ) from None
    return found


def _too_deep(max_depth: int) -> WebhookError:
    return WebhookError(
        400,
        f"The JSON is nested more than {max_depth} levels deep.",
        "increase webhooks.max_depth if the sender is right",
    )


def _is_deeper(value: Any, most: int) -> bool:
    """Whether arrays and objects are nested more than `most` levels. Does not recurse."""
    level = [value]
    for _ in range(most):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        if not below:
            return False
        level = below
    return any(isinstance(each, dict | list) for each in level)
