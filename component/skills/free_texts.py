"""Free texts: the parameters of a skill that a standing approval leaves open.

Somebody who has approved equal calls of a skill several times can allow such calls for a while. All
parameters of these calls are then fixed, except those that the author of the skill has marked with
`"x-free-text": true` in the JSON Schema, such as the text of a message. The mark is refused where
it would leave open who gets something, where it goes or how much it is.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

KEY: Final = "x-free-text"
FREE_TEXT: Final = msgspec.Meta(extra_json_schema={KEY: True})
"""Marks a parameter of a function: `text: Annotated[str, FREE_TEXT]`."""

_WORD: Final = r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])"
_ANYWHERE: Final = frozenset(
    (
        *("to", "cc", "bcc", "recipient", "receiver", "addressee", "address", "jid", "phone"),
        *("account", "iban", "amount", "price", "sum", "total", "currency", "quantity"),
        *("path", "filename", "directory", "folder", "url", "uri", "link", "href"),
        *("host", "hostname", "domain", "server", "endpoint"),
        *("command", "cmd", "script", "code", "sql"),
        *("token", "password", "secret", "credential", "key"),
    )
)
"""Words in the names of parameters that say who, where or how much."""
_AT_THE_END: Final = frozenset(
    ("email", "mail", "file", "room", "channel", "contact", "user", "id", "name", "number")
)
"""The same if they are the last word: `email`, but not `email_text`."""
_LIMITING: Final = (
    *("format", "enum", "const", "pattern", "contentEncoding", "writeOnly", "$ref", "allOf"),
)
"""Keywords of a parameter whose values are not just any text."""


def free_texts(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the parameters that a schema of parameters marks as free texts."""
    return frozenset(
        name
        for name, each in schema.get("properties", {}).items()
        if isinstance(each, Mapping) and each.get(KEY) is True
    )


def find_mistake(properties: Mapping[str, object]) -> str | None:
    """Return what is wrong with the marks of parameters, as a sentence; None if nothing is."""
    for name, each in properties.items():
        if not isinstance(each, Mapping):
            continue
        if any(KEY in one for one in _alternatives(each)):
            return f"the mark {KEY!r} of {name!r} is inside of its type: mark the parameter itself."
        if not isinstance(each.get(KEY, False), bool):
            return f"the mark {KEY!r} of {name!r} is {each[KEY]!r}: write true, or remove it."
        if each.get(KEY) and (why := _unfit(name, each)):
            return (
                f"{name!r} cannot be a free text, because {why}. A standing approval has to say who"
                f" gets something, where it goes and how much it is: remove {KEY!r}."
            )
    return None


def _unfit(name: str, declared: Mapping[str, Any]) -> str | None:
    members = [one for one in _alternatives(declared) if one.get("type") != "null"] or [declared]
    for one in (declared, *members):
        if limits := [key for key in _LIMITING if one.get(key)]:
            return f"it has {limits[0]!r} and so cannot be any text"
    kinds = members[0].get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if len(members) > 1 or not isinstance(kinds, list) or {*kinds} - {"null"} != {"string"}:
        return "it is not a text"
    words = [word.lower() for word in re.findall(_WORD, name)]
    for word in words:
        if _ANYWHERE & {word, word.removesuffix("s"), word.removesuffix("es")}:
            return f"its name has the word {word!r}"
    if words and words[-1] in _AT_THE_END:
        return f"its name ends with the word {words[-1]!r}"
    return None


def _alternatives(declared: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("anyOf", "oneOf"):
        parts = declared.get(key)
        if isinstance(parts, list):
            yield from (part for part in parts if isinstance(part, Mapping))
