"""Describes skills for people: what each does, which parameters it has, and how it is run."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from component.commands import shorten
from component.skills.errors import printable
from component.skills.form_fields import ABSENT, Property, properties_of
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL

_LONGEST_LINE: Final = 200
_LONGEST_TEXT: Final = 2_000
_MOST_CHOICES: Final = 12
_OTHERS: Final = "Others"
_KINDS: Final = {
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "lines": "a list, such as a,b",
    "json": "JSON",
}
_SAMPLES: Final[dict[str, str]] = {
    "boolean": "yes",
    "integer": "3",
    "number": "1.5",
    "lines": "a,b",
    "json": "{}",
    "xs:date": "2026-12-24",
    "xs:dateTime": "2026-12-24T18:00:00Z",
    "xs:anyURI": "https://example.com/",
}


def first_line(skill: Skill) -> str:
    """Return what a skill does, in one line."""
    return shorten(skill.description.strip().partition("\n")[0], _LONGEST_LINE)


def skills_text(skills: Sequence[Skill]) -> str:
    """Return a list of skills by their first tags; tags that only one of them has are left out."""
    groups: dict[str, list[Skill]] = {}
    for skill in skills:
        tag = next((one for one in skill.tags if one != OPTIONAL), "")
        groups.setdefault(tag, []).append(skill)
    shown = {tag: found for tag, found in groups.items() if tag and len(found) > 1}
    rest = [skill for tag, found in groups.items() if tag not in shown for skill in found]
    if not shown:
        return "\n".join(map(_line, rest))
    parts = [_part(_plain(tag[:1].upper() + tag[1:]), shown[tag]) for tag in sorted(shown)]
    return "\n\n".join(parts + ([_part(_OTHERS, rest)] if rest else []))


def _part(title: str, skills: Sequence[Skill]) -> str:
    return "\n".join((f"{title}:", *map(_line, skills)))


def _line(skill: Skill) -> str:
    return f"- {_plain(skill.title)} ({skill.name}): {_plain(first_line(skill))}"


def _plain(text: str) -> str:
    """Return a text of an author on one line, so that it cannot pose as something else."""
    return printable(" ".join(text.split()), _LONGEST_LINE)


def skill_text(skill: Skill) -> str:
    """Return a description of a skill with its parameters and an example."""
    return "\n".join(_skill_lines(skill))


def _skill_lines(skill: Skill) -> Iterator[str]:
    yield f"{_plain(skill.title)} ({skill.name})"
    if skill.description:
        yield shorten(skill.description.strip(), _LONGEST_TEXT)
    properties = properties_of(skill.input_schema)
    needed = [one for one in properties if one.required]
    others = [one for one in properties if not one.required]
    for title, found in (("It needs:", needed), ("You can also give:", others)):
        if found:
            yield title
            yield from map(param_text, found)
    yield f"For example: {example(skill)}"


def param_text(declared: Property) -> str:
    """Return a parameter in one line: its name, its meaning, its values and its default."""
    values = _KINDS.get(declared.kind, "")
    if declared.choices:
        named = [one.text for one in declared.choices[:_MOST_CHOICES]]
        more = ", …" if len(declared.choices) > _MOST_CHOICES else ""
        values = f"{'some' if declared.kind == 'choices' else 'one'} of {', '.join(named)}{more}"
    elif declared.least is not None and declared.greatest is not None:
        values += f" from {declared.least} to {declared.greatest}"
    elif declared.least is not None:
        values += f" from {declared.least}"
    elif declared.greatest is not None:
        values += f" up to {declared.greatest}"
    notes = [values] if values else []
    default = None if declared.default is ABSENT else _shown(declared, declared.default)
    if default:
        notes.append(f"default {shorten(default, 60)}")
    about = _plain(declared.description or declared.title or "")
    text = f"- {declared.name}: {about}" if about else f"- {declared.name}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def _shown(declared: Property, value: Any) -> str:
    if declared.kind == "boolean":
        return "yes" if value else "no"
    return ",".join(declared.texts(value) or ())


def example(skill: Skill) -> str:
    """Return a command that runs a skill with the parameters that it needs."""
    needed = [one for one in properties_of(skill.input_schema) if one.required]
    return " ".join(("/run", skill.name, *(f"{one.name}={_sample(one)}" for one in needed)))


def _sample(declared: Property) -> str:
    if declared.choices:
        text = declared.choices[0].text
    else:
        kind = declared.datatype if declared.datatype in _SAMPLES else declared.kind
        text = _SAMPLES.get(kind or "", "…")
        if declared.kind in ("integer", "number"):
            text = declared.least or declared.greatest or text
    return f'"{text}"' if " " in text or text == "…" else text
