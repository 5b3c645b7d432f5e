"""The result of a finished ad-hoc command: a note in words, and a form of type result for
the rest.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from component.commands import CommandResult
from component.skills.form_fields import NEWLINE
from component.tasks.files import text_of
from xep.binding.escaping import without_forbidden
from xep.commands import Note
from xep.data_forms import Field, Form, Item, Reported, form_type_field
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import NAMESPACE as TASK

CommandContent: TypeAlias = tuple[tuple[Note, ...], Form | None]


def of_result(title: str, result: Result) -> CommandContent:
    """Return a skill's outputs, one field each; a result that reports an error has a note of type
    error.
    """
    said = "\n".join(output.text for output in result.outputs if output.text)
    if result.is_error:
        note = Note(type="error", text=without_forbidden(said or f"{title}: refused."))
    else:
        note = Note(type="info", text=f"{title}: done.")
    if not result.outputs:
        return (note,), None
    fields = (form_type_field(EXECUTE), *map(_output, result.outputs))
    return (note,), Form(type="result", title=title, fields=fields)


def of_accepted(title: str, accepted: Accepted) -> CommandContent:
    """Return the result for work that continues as a task: its id, and that messages will follow
    (FAC-007).
    """
    text = f"{title} continues as task {accepted.task}. You will get messages about its progress."
    if accepted.state == "input-required":
        text += " It is waiting for an answer: see the message with the question."
    fields = (
        form_type_field(TASK),
        _field("task", "Task", accepted.task),
        _field("state", "State", accepted.state),
    )
    return (Note(type="info", text=text),), Form(type="result", title=title, fields=fields)


def of_answer(title: str, answer: CommandResult) -> CommandContent:
    """Return the text of a command's result, and its table if it has one."""
    notes = (Note(type="info", text=without_forbidden(answer.text)),)
    value = answer.value
    if isinstance(value, msgspec.Struct):
        return notes, Form(type="result", title=title, fields=_row(value))
    if not value:
        return notes, None
    reported = Reported(
        fields=tuple([Field(var=field.var, label=field.label) for field in _row(value[0])])
    )
    return notes, Form(
        type="result", title=title, reported=reported, items=tuple(map(_item, value))
    )


def _output(output: Output) -> Field:
    return _field(output.name, output.name, text_of(output))


def _field(var: str, label: str, text: str) -> Field:
    values: Sequence[str] = NEWLINE.split(without_forbidden(text))
    type_ = "text-multi" if len(values) > 1 else "text-single"
    return Field(var=var, type=type_, label=label, values=tuple(values))


def _item(row: msgspec.Struct) -> Item:
    return Item(fields=tuple([Field(var=each.var, values=each.values) for each in _row(row)]))


def _row(row: msgspec.Struct) -> tuple[Field, ...]:
    values: dict[str, Any] = msgspec.to_builtins(row, enc_hook=str, str_keys=True)
    return tuple(
        [
            _field(name, name.replace("_", " ").capitalize(), _text(values.get(name)))
            for name in (field.encode_name for field in msgspec.structs.fields(row))
        ]
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
