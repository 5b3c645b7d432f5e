"""Puts a call that a person has to confirm into words: the question of its skill, or its title, and
the parameters that differ from their defaults.

The values are written by the caller or a model. So each text among them is marked: `*tea*` if it
is plain and short, else as JSON or, below the question, as lines that begin with `>`.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from component.skills.errors import printable
from component.skills.form_fields import ABSENT, Property, properties_of
from component.skills.question import Part, read_question
from component.skills.skill import Skill
from component.task_messages.value_rendering import (
    WHOLE,
    look_alikes,
    printable_name,
    quoted,
    shown_parameters,
    visible,
)

_RUN: Final = "May I run "
_LONGEST_TITLE: Final = 200
_LONGEST_VALUE: Final = 200
_LONGEST_LIST: Final = 400
_MOST_ITEMS: Final = 10
_UNKNOWN: Final = Property(name="", kind="json")

InLocalTime = Callable[[datetime], str]
"""Returns a time in the time zone of a person."""


class Wording(msgspec.Struct, frozen=True):
    """A call in words: a `sentence`, which is on one line, and the `lines` that follow it.

    `hidden` are the parameters that differ from their defaults and are not shown, and `cut` says
    that a long value is truncated.
    """

    sentence: str
    lines: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    cut: bool = False

    @property
    def action(self) -> str:
        """The sentence as a part of another one: `remind you of *tea* in 1 minute`."""
        if self.sentence.startswith(_RUN):
            return self.sentence.removeprefix(_RUN).replace("? ", ": ", 1).rstrip("?.")
        return self.sentence.removeprefix("May I ").removesuffix("?")


def wording_of(
    skill: Skill, values: Mapping[str, Any], in_local_time: InLocalTime, *, hides: bool = True
) -> Wording:
    """Return a call of a skill in words. `hides` allows that the question of the skill mentions
    not all parameters that differ from their defaults; otherwise the lines show the others.
    """
    words = _Words(skill, values, in_local_time)
    sentence = "".join(map(words.part, read_question(skill.question)))
    others = [name for name in words.differing if name not in words.mentioned]
    hidden: tuple[str, ...] = ()
    if not sentence:
        sentence = f"{_RUN}{name_of(skill)}?{words.listed(others)}"
    elif hides:
        hidden = tuple(others)
    else:
        words.below += others
    lines, cut = words.lines()
    return Wording(sentence, lines, hidden, cut)


def standing_wording(skill: Skill, values: Mapping[str, Any], free: Collection[str]) -> str:
    """Return what calls of a skill do, with any text for the parameters `free`, as a part of a
    sentence; empty if the values do not fit into one.
    """
    words = _Words(skill, values, lambda time: f"{time:%Y-%m-%d %H:%M} UTC", free)
    sentence = "".join(map(words.part, read_question(skill.question)))
    action = Wording(sentence).action if sentence else f"run {name_of(skill)}"
    others = words.listed([name for name in words.differing if name not in words.mentioned])
    if words.below:
        return ""
    return f"{action} with{others.removesuffix('.')}" if others else action


def as_given(name: str, values: Mapping[str, Any]) -> Wording:
    """Return a call of a skill that is not known, with all of its parameters."""
    name, given = printable_name(name), shown_parameters(values)
    inline = ", ".join(given.lines)
    if not inline or (len(inline) <= _LONGEST_LIST and not given.cut):
        return Wording(f"{_RUN}{name}? {inline}.".removesuffix(" ."))
    count = len(given.lines)
    below = "Its parameter is below." if count == 1 else f"Its {count} parameters are below."
    return Wording(f"{_RUN}{name}? {below}", given.lines, cut=given.cut)


def name_of(skill: Skill) -> str:
    """Return the title of a skill for people, with its name if a stranger may have written it."""
    name = printable_name(skill.name)
    if skill.title.casefold() == skill.name.casefold():
        return name
    title = f'"{printable(skill.title, _LONGEST_TITLE)}"'
    return title if skill.described_by is None else f"{title} ({name})"


class _Words:
    """The words for the parameters of one call; those that are `free` have any text.

    Attributes:
        differing: the names of the parameters that differ from their defaults.
        mentioned: those that the sentence has mentioned.
        below: those of them whose values do not fit into the sentence.
    """

    def __init__(
        self,
        skill: Skill,
        values: Mapping[str, Any],
        in_local_time: InLocalTime,
        free: Collection[str] = (),
    ) -> None:
        self._values = values
        self._free = free
        self._properties = {one.name: one for one in properties_of(skill.input_schema)}
        self._in_local_time = in_local_time
        self.differing = [name for name in values if self._differs(name)]
        self.mentioned: set[str] = set()
        self.below: list[str] = []

    def part(self, part: Part) -> str:
        """Return a part of a question; empty if it is optional and does not apply."""
        if part.optional and not all(name in self.differing for name in part.names):
            return ""
        words = [part.pieces[0]]
        for name, text in zip(part.names, part.pieces[2::2], strict=True):
            words += (self.value(name), text)
        return "".join(words)

    def label(self, name: str) -> str:
        """Return the title of a parameter, if it distinguishes it from the others."""
        titles = [self._property(each).title or each for each in self._values]
        label = self._property(name).title or name
        same = [each for each in titles if each.casefold() == label.casefold()]
        return printable_name(label if len(same) == 1 else name)

    def value(self, name: str) -> str:
        """Return a value for the sentence, and note that it is mentioned."""
        self.mentioned.add(name)
        said = self._said(name)
        if said is None:
            if name not in self.below:
                self.below.append(name)
            return f"({self.label(name)}, see below)"
        return said

    def listed(self, names: Sequence[str]) -> str:
        """Return these parameters with their values as a sentence; those that are too long for it
        are shown below.
        """
        said = {name: self._said(name) for name in names}
        shown = [f"{self.label(name)}: {text}" for name, text in said.items() if text is not None]
        if len(", ".join(shown)) > _LONGEST_LIST:
            shown, said = [], dict.fromkeys(said)
        self.below += [name for name, text in said.items() if text is None]
        return f" {', '.join(shown)}." if shown else ""

    def lines(self) -> tuple[tuple[str, ...], bool]:
        """Return the values that are shown below the sentence, and whether one is truncated."""
        values = {self.label(name): self._values[name] for name in self.below}
        if sum(len(quoted(value)) for value in values.values()) > WHOLE:
            shown = shown_parameters(values)
            return shown.lines, shown.cut
        found: list[str] = []
        for label, value in values.items():
            if not isinstance(value, str):
                found += shown_parameters({label: value}).lines
                continue
            found.append(f"{label}:{look_alikes(value)}")
            found += [f"> {visible(line)}" for line in value.split("\n")]
        return tuple(found), False

    def _property(self, name: str) -> Property:
        return self._properties.get(name, _UNKNOWN)

    def _differs(self, name: str) -> bool:
        declared = self._property(name)
        default = None if declared.default is ABSENT else declared.default
        if declared.required or name in self._free:
            return True
        return _json(self._values[name]) != _json(default)

    def _said(self, name: str) -> str | None:
        """Return the value of a parameter in words; None if it does not fit into a sentence."""
        if name in self._free:
            return "any text"
        value = self._values.get(name)
        said = self._spoken(self._property(name), value)
        return None if said is None else f"{said}{look_alikes(value)}"

    def _spoken(self, declared: Property, value: Any) -> str | None:
        """Return a value in words; None if it does not fit into a sentence."""
        match value:
            case None:
                return "none"
            case list():
                if len(value) > _MOST_ITEMS:
                    return None
                items = [self._scalar(declared, each) for each in value]
                said = ", ".join(each for each in items if each) if all(items) else None
                said = "none" if said == "" else said
            case dict():
                said = None
            case _:
                said = self._scalar(declared, value)
        if said is None and not isinstance(value, str):
            said = quoted(value)
        return said if said is not None and len(said) <= _LONGEST_VALUE else None

    def _scalar(self, declared: Property, value: Any) -> str | None:
        for choice in declared.choices:
            if choice.label and _json(choice.value) == _json(value):
                return printable(choice.label, _LONGEST_VALUE)
        match value:
            case bool():
                return "yes" if value else "no"
            case int() | float():
                return quoted(value)
            case str():
                return self._text(declared, value)
        return None

    def _text(self, declared: Property, value: str) -> str | None:
        if declared.datatype == "xs:dateTime":
            try:
                time = msgspec.convert(value, datetime)
            except msgspec.ValidationError:
                return quoted(value)
            return quoted(value) if time.tzinfo is None else f"*{self._in_local_time(time)}*"
        if len(value) > _LONGEST_VALUE or "\n" in value:
            return None
        plain = value == visible(value).strip() and value and "*" not in value and '"' not in value
        return f"*{value}*" if plain else quoted(value)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
