"""The ad-hoc commands: every skill of a view (FAC-001), and the service's commands.

Each becomes an `Offer`, so the handler of commands only deals with forms and stages.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias

import msgspec
import structlog

from component.commands import AnyCommand, CommandError, CommandResult, Commands
from component.kernel.adhoc import AdHocRequest, Completed, Misfit, Offer, Outcome
from component.kernel.errors import stored
from component.skills.form_fields import NEWLINE
from component.skills.registry import View
from component.skills.skill import Skill
from component.store import StorageError
from component.tasks.admission import Answer
from component.tasks.outputs import text_of
from xep.binding.escaping import without_forbidden
from xep.commands import Note
from xep.data_forms import Field, Form, Item, Reported, form_type_field
from xep.fluux_agent import errors
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import NAMESPACE as TASK
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.commands")

_SKILL = "skill/"
_COMMAND = "command/"

RunSkill: TypeAlias = Callable[[AdHocRequest, str, bytes], Answer | Awaitable[Answer]]
"""Runs a skill as an execute request of the same principal would (FAC-005), with JSON parameters.

It may raise StanzaError, and so may its awaitable.
"""


class SkillOffers:
    """The skills of a view."""

    def __init__(self, view: Callable[[JID], View], run: RunSkill, retry_after_s: int = 5) -> None:
        self._view = view
        self._run = run
        self._retry_after_s = retry_after_s

    def nodes(self, principal: JID) -> Sequence[str]:
        """Return a node for each skill of the principal's view, and no other (FAC-001)."""
        return [_SKILL + name for name in self._view(principal).names()]

    def get(self, node: str, principal: JID) -> Offer | None:
        """Return the skill of a node."""
        if not node.startswith(_SKILL):
            return None
        skill = self._view(principal).get(node.removeprefix(_SKILL))
        if skill is None:
            return None
        return Offer(
            node=node,
            title=skill.title,
            about=skill.description,
            schema=skill.input_schema,
            form_type=EXECUTE,
            run=lambda asked, json: self._begin(skill, asked, json),
        )

    def _begin(
        self, skill: Skill, asked: AdHocRequest, json: msgspec.Raw
    ) -> Outcome | Awaitable[Outcome]:
        try:
            found = self._run(asked, skill.name, bytes(json))
        except StanzaError as error:
            return _refusal(error)
        if isawaitable(found):
            return self._wait(skill, found)
        return _outcome(skill, found)

    async def _wait(self, skill: Skill, found: Awaitable[Answer]) -> Outcome:
        try:
            return _outcome(skill, await stored(found, self._retry_after_s))
        except StanzaError as error:
            return _refusal(error)


class CommandOffers:
    """The commands that are also slash commands."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def nodes(self, principal: JID) -> Sequence[str]:
        """Return a node for each command of the principal."""
        return [
            _COMMAND + each.name for each in self._commands.of(self._commands.asking(principal))
        ]

    def get(self, node: str, principal: JID) -> Offer | None:
        """Return the command of a node."""
        if not node.startswith(_COMMAND):
            return None
        name = node.removeprefix(_COMMAND)
        command = self._commands.get(name, self._commands.asking(principal))
        if command is None:
            return None
        return Offer(
            node=node,
            title=command.title,
            about=f"{command.about}.",
            schema=command.schema,
            form_type=None,
            run=lambda asked, json: self._do(command, asked, json),
        )

    async def _do(self, command: AnyCommand, asked: AdHocRequest, json: msgspec.Raw) -> Outcome:
        asking = self._commands.asking(asked.principal, asked.target, asked.lang, asked.requester)
        try:
            answer: CommandResult = await command.run(asking, command.read(json=bytes(json)))
        except CommandError as error:
            if error.param is not None:
                return Misfit(str(error), {error.param: str(error)})
            return Completed((Note(type="error", text=str(error)),))
        except StorageError as error:
            _log.error("a command failed", command=command.name, reason=str(error))
            return Completed((Note(type="error", text=errors.internal().text),))
        return Completed(*of_answer(command.title, answer))


def _outcome(skill: Skill, found: Answer) -> Completed:
    if isinstance(found, Accepted):
        return Completed(*of_accepted(skill.title, found))
    return Completed(*of_result(skill.title, found))


def _refusal(error: StanzaError) -> Outcome:
    """Return the outcome of a command that was refused. Raises StanzaError if the skill no longer
    exists.
    """
    text = error.text or error.condition.replace("-", " ")
    for condition in error.application:
        if isinstance(condition, errors.UnknownSkill):
            raise error
        if isinstance(condition, errors.InvalidParam):
            return Misfit(text, {condition.name: text.removeprefix(f"{condition.name}: ")})
        if isinstance(condition, errors.Malformed):
            return Misfit(text, {})
    return Completed((Note(type="error", text=text),))


# -- results: a note in words, and a form of type result for the rest -----------------------------

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
