"""Reads the parameters of a skill from the words of a person: `city=Paris days=3 tags=a,b`.

Words without a name are assigned in the order of the parameters. Lists are written with commas, as
JSON, or by giving the name several times; objects are written as JSON.
"""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from component.commands import CommandError, assign_words, split_words
from component.skills.form_fields import Property, properties_of
from component.skills.skill import Skill
from component.tasks.request import NO_JSON
from xep.binding.json_bounds import checked_json
from xep.fluux_agent.execute import Param

_QUOTED_OR_JSON: Final = (
    r"""'[^']*'|"(?:\\.|[^"\\])*"|(?<!\S)(?P<name>[^\s='"]+)=(?P<json>(?=[\[{]))"""
)
"""Matches a text in quotation marks, or the beginning of `name={` or `name=[`."""
_PLAIN_QUOTES: Final = str.maketrans("\u201c\u201d\u201e", '"""')
"""Phones write the others; each is one character, so places in the text stay the same."""
_BOOLEANS: Final = {
    "yes": "true", "y": "true", "on": "true", "no": "false", "n": "false", "off": "false",
}  # fmt: skip


class GivenParams(msgspec.Struct, frozen=True):
    """The parameters of a request: those as text, and a JSON object of others."""

    texts: tuple[Param, ...]
    json: msgspec.Raw = NO_JSON


def read_params(skill: Skill, text: str) -> GivenParams:
    """Return the parameters that a text gives. Raises CommandError, naming what is wrong."""
    properties = {one.name: one for one in properties_of(skill.input_schema)}
    lists = {one.name for one in properties.values() if one.kind in ("lines", "choices")}
    words = split_words(_with_quoted_json(text))
    texts: list[Param] = []
    objects: dict[str, Any] = {}
    for name, word in assign_words(skill.name, list(properties), lists, words):
        declared = properties[name]
        if declared.kind == "json" or (name in lists and word.startswith("[")):
            objects[name] = _read_json(declared, word)
        else:
            texts += [Param(name=name, text=each) for each in _texts(declared, word)]
    raw = msgspec.Raw(msgspec.json.encode(objects)) if objects else NO_JSON
    return GivenParams(tuple(texts), raw)


def _texts(declared: Property, word: str) -> Iterator[str]:
    """Yield the texts of one word, as the schema has them."""
    if declared.kind in ("lines", "choices"):
        for item in word.split(","):
            if item.strip():
                yield _choice(declared, item.strip())
    elif declared.kind == "boolean":
        yield _BOOLEANS.get(word.casefold(), word)
    else:
        yield _choice(declared, word)


def _choice(declared: Property, word: str) -> str:
    """Return the text of a choice that is given by its title, or in another case."""
    known = [one.text for one in declared.choices]
    if word in known or not known:
        return word
    titled = declared.titled(word)
    same = [one for one in known if one.casefold() == word.casefold()]
    return titled.text if titled is not None else same[0] if len(same) == 1 else word


def _read_json(declared: Property, word: str) -> Any:
    try:
        return msgspec.json.decode(checked_json(word.encode("utf-8", "surrogatepass")))
    except (ValueError, RecursionError):
        if word[:1] in ("{", "["):
            raise CommandError(
                f"{declared.name} is not valid JSON: check its quotation marks and brackets.",
                declared.name,
            ) from None
        return word


def _with_quoted_json(text: str) -> str:
    """Put each JSON value into quotation marks, so that its own ones are not removed."""
    found: list[str] = []
    position = 0
    for match in re.finditer(_QUOTED_OR_JSON, text):
        start = match.end()
        if match["json"] is None or match.start() < position:
            continue
        for candidate in (text, text.translate(_PLAIN_QUOTES)):
            try:
                _, end = json.JSONDecoder().raw_decode(candidate, start)
            except (ValueError, RecursionError):
                continue
            found += [text[position:start], shlex.quote(candidate[start:end])]
            position = end
            break
    return "".join((*found, text[position:]))
