"""The commands that list skills and run them, with or without a model."""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from component.commands import (
    ANY_WORD,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
)
from component.features.service_commands.skill_texts import (
    example,
    first_line,
    param_text,
    skill_text,
    skills_text,
)
from component.features.service_commands.skill_words import read_params
from component.kernel.skill_runs import Execute, request_of, run_skill
from component.skills.errors import SearchError
from component.skills.form_fields import properties_of
from component.skills.registry import View
from component.skills.skill import Skill
from component.tasks.refusals import with_help
from component.tasks.request import Request
from xep.fluux_agent.errors import InvalidParam, Malformed, UnknownSkill
from xep.jid import JID
from xep.stanza_error import StanzaError

_SKILLS_SHOWN: Final = 50
_HOW: Final = "Send /run and a name to run one, and /skills and a name to see what it needs."


class SkillsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of skills.

    Args:
        words: Name of a skill to explain; or only skills that match all these words.
    """

    words: tuple[str, ...] = ()


class RunParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of run.

    Args:
        skill: Name of the skill.
        parameters: Its parameters, such as: city=Paris days=3 note="two words" tags=a,b
    """

    skill: str = ""
    parameters: Annotated[str, msgspec.Meta(max_length=100_000)] = ""


class SkillSummary(msgspec.Struct, frozen=True):
    """A skill in a list."""

    name: str
    title: str
    description: str


SKILLS = Outline(
    name="skills",
    title="Skills",
    about="list what I can do for you; add a name to see how, or words to search",
    params=SkillsParams,
    group="everyday",
    in_menu=False,
    only_reads=True,
)
RUN = Outline(
    name="run",
    title="Run a skill",
    about="run a skill: its name, and parameters such as city=Paris",
    params=RunParams,
    verbatim={ANY_WORD: "parameters"},
    group="everyday",
    in_menu=False,
)


class SkillCommands:
    """The commands about skills.

    Args:
        view: returns the skills that a principal sees.
        execute: runs a skill; None where no service runs.
    """

    def __init__(self, view: Callable[[JID], View], execute: Execute | None = None) -> None:
        self._view = view
        self._execute = execute

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        skills = SKILLS.done_by(self._skills)
        return (skills,) if self._execute is None else (skills, RUN.done_by(self._run))

    def named(self, asking: Asking, name: str) -> Skill | None:
        """Return a skill by its name, in any case, if the caller may use it."""
        if asking.principal is None:
            return None
        view = self._view(asking.principal)
        same = (one for one in view.names() if one.casefold() == name.casefold())
        return view.get(name) or view.get(next(same, name))

    async def _skills(self, asking: Asking, params: SkillsParams) -> CommandResult:
        if asking.principal is None:
            raise CommandError("This works only over XMPP.")
        named = self.named(asking, params.words[0]) if len(params.words) == 1 else None
        if named is not None:
            return CommandResult(skill_text(named), _summary(named))
        view = self._view(asking.principal)
        try:
            names = view.names(" ".join(params.words))
        except SearchError as error:
            raise CommandError(str(error), "words") from None
        if not names:
            none = "No skill matches." if params.words else "There are no skills for you."
            return CommandResult(none, ())
        found = [one for name in names[:_SKILLS_SHOWN] if (one := view.get(name)) is not None]
        text = skills_text(found)
        if len(names) > len(found):
            text += f"\n… and {len(names) - len(found)} more: add words to search."
        return CommandResult(f"{text}\n\n{_HOW}", [_summary(one) for one in found])

    async def _run(self, asking: Asking, params: RunParams) -> CommandResult:
        if asking.principal is None or self._execute is None:
            raise CommandError("This works only over XMPP.")
        if not params.skill:
            raise CommandError("Say which skill: /run and its name. /skills lists them.", "skill")
        name = params.skill.removeprefix("skill=")
        skill = self.named(asking, name)
        if skill is None:
            raise CommandError(self._unknown(asking.principal, name), "skill")
        given = read_params(skill, params.parameters)
        request = request_of(asking, skill, "run", given.texts, given.json)
        _check_needed(skill, request)
        try:
            return await run_skill(self._execute, request, skill)
        except StanzaError as error:
            raise CommandError(_refused(skill, error), "parameters") from None

    def _unknown(self, principal: JID, name: str) -> str:
        from difflib import get_close_matches  # noqa: PLC0415 - only a misspelt name needs it

        # Comparing takes long: of the skills of catalogues, those with the same beginning count.
        view, (beginning, dot, _) = self._view(principal), name.casefold().partition(".")
        names = [one.name for one in view.made()]
        names += [one for one in view.names() if dot and one.startswith(beginning + dot)]
        close = get_close_matches(name.casefold(), names, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        return f"There is no skill called {name[:80]!r}.{meant} Send /skills for a list."


def _summary(skill: Skill) -> SkillSummary:
    return SkillSummary(skill.name, skill.title, first_line(skill))


def _check_needed(skill: Skill, request: Request) -> None:
    """Raise CommandError, with an example, if parameters are missing that the skill needs."""
    given = {one.name for one in request.params}
    if request.json:
        given |= msgspec.json.decode(request.json, type=dict[str, msgspec.Raw]).keys()
    missing = [
        one for one in properties_of(skill.input_schema) if one.required and one.name not in given
    ]
    if missing:
        lines = "\n".join(map(param_text, missing))
        needs = "also needs" if given else "needs"
        raise CommandError(
            f"{skill.title} {needs}:\n{lines}\nFor example: {example(skill)}", "parameters"
        )


def _refused(skill: Skill, error: StanzaError) -> str:
    """Return why a skill was not run, and how it is run if its parameters are the reason."""
    text = error.text or f"I can't run {skill.title}: {error.condition.replace('-', ' ')}."
    if any(isinstance(one, UnknownSkill) for one in error.application):
        return f"There is no skill called {skill.name} any more. Send /skills for a list."
    if any(isinstance(one, InvalidParam | Malformed) for one in error.application):
        return f"{text.rstrip('.')}.\nFor example: {example(skill)}"
    return with_help(text, error.application)
