"""The ad-hoc commands: every skill of a view (FAC-001), and the service's commands.

Each becomes an `Offer`, so the handler of commands only deals with forms and stages.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import TypeAlias

import msgspec
import structlog

from component.commands import AnyCommand, CommandError, CommandResult, Commands
from component.execution.admission import ExecutionAnswer
from component.features.adhoc.results import of_accepted, of_answer, of_result
from component.kernel.adhoc import Asked, Completed, Misfit, Offer, Outcome
from component.kernel.storing import stored
from component.skills.registry import View
from component.skills.skill import Skill
from component.storage import StorageError
from xep.commands import Note
from xep.fluux_agent import errors
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Accepted
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.commands")

_SKILL = "skill/"
_COMMAND = "command/"

RunSkill: TypeAlias = Callable[[Asked, str, bytes], ExecutionAnswer | Awaitable[ExecutionAnswer]]
"""Runs a skill as an execute request of the same principal would (FAC-005), with JSON parameters.

It may raise StanzaError, and so may its awaitable.
"""


class SkillOffers:
    """The skills of a view.

    Args:
        view: the skills that a principal sees.
        run: runs them.
        retry_after_s: seconds after which to try again when the database refuses.
    """

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

    def _begin(self, skill: Skill, asked: Asked, json: msgspec.Raw) -> Outcome | Awaitable[Outcome]:
        try:
            found = self._run(asked, skill.name, bytes(json))
        except StanzaError as error:
            return _refusal(error)
        if isawaitable(found):
            return self._wait(skill, found)
        return _outcome(skill, found)

    async def _wait(self, skill: Skill, found: Awaitable[ExecutionAnswer]) -> Outcome:
        try:
            return _outcome(skill, await stored(found, self._retry_after_s))
        except StanzaError as error:
            return _refusal(error)


class CommandOffers:
    """The commands that are also slash commands.

    Args:
        commands: the commands.
    """

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

    async def _do(self, command: AnyCommand, asked: Asked, json: msgspec.Raw) -> Outcome:
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


def _outcome(skill: Skill, found: ExecutionAnswer) -> Completed:
    if isinstance(found, Accepted):
        return Completed(*of_accepted(skill.title, found))
    return Completed(*of_result(skill.title, found))


def _refusal(error: StanzaError) -> Outcome:
    """Return the outcome of a command that was refused.

    Raises StanzaError if the skill no longer exists.
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
