"""Converts what a skill returns and raises to the result or the error of a task, and collects the
artifacts that it publishes while it runs (specification, "Artifacts Before the End").
"""

from collections.abc import Iterable, Sequence

import msgspec
import structlog

from component.skills import outputs as skill_outputs
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillFailed,
    SkillInterrupted,
    SkillTimeout,
    SkillUnavailable,
)
from component.skills.outputs import Part, SkillResult
from component.skills.skill import Skill
from component.tasks.files import shared
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, Result, Usage
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.tasks")


def result_of(skill: Skill, made: SkillResult) -> Result:
    """Return the result of a skill. Artifacts without a name get a unique one (EXE-011)."""
    outputs: tuple[Output, ...]
    if len(made.outputs) == 1:
        (only,) = made.outputs
        outputs = (_artifact(only, only.name or "output"),)
    else:
        outputs = _named(made)
    return Result(
        skill=skill.name,
        is_error=made.is_error,
        outputs=outputs,
        usage=Usage(duration_ms=round(made.duration * 1000)),
    )


def _named(made: SkillResult) -> tuple[Output, ...]:
    taken = {output.name for output in made.outputs if output.name}
    outputs: list[Output] = []
    for number, one in enumerate(made.outputs):
        name = one.name or ("output" if number == 0 else f"output-{number + 1}")
        while one.name is None and name in taken:
            name += "-"
        taken.add(name)
        outputs.append(_artifact(one, name))
    return tuple(outputs)


def _artifact(part: Part, name: str) -> Output:
    if isinstance(part, skill_outputs.Output):
        return Output(name=name, type=part.media_type, text=part.text)
    kind = part.media_type or "application/octet-stream"
    return Output(name=name, type=kind, file=shared(part))


def checked(skill: Skill, result: Result, most_bytes: int) -> Result | StanzaError:
    """Return the result, or the error if it cannot be sent: two artifacts have the same name, or it
    is too large.
    """
    names = [output.name for output in result.outputs]
    if len(set(names)) != len(names):
        _log.error("a skill returned two outputs with the same name", skill=skill.name, names=names)
        return errors.internal()
    size = len(encode(result).encode())
    return result if size <= most_bytes else errors.too_big(most_bytes)


def error_of(skill: Skill, error: Exception) -> StanzaError:
    """Return the stanza error for what `component.skills.calling.call` raised."""
    match error:
        case InvalidParam(name=None):
            return errors.malformed(str(error))
        case InvalidParam(name=str() as name):
            found = errors.invalid_param(name, error.reason)
            found.text = str(error)  # the path inside the parameter, if there is one
            return found
        case SkillTimeout():
            return errors.timed_out(repeatable=skill.annotations.repeatable)
        case SkillInterrupted() if not skill.annotations.repeatable:
            found = errors.outcome_unknown()
            found.text = str(error)
            return found
        case SkillUnavailable():
            repeatable = skill.annotations.repeatable or not error.begun
            found = errors.remote_failure(repeatable=repeatable)
            found.text = str(error)
            return found
        case CapabilityMissing():
            return errors.forbidden(str(error))
        case SkillFailed(__cause__=Denied() as denied):
            found = errors.denied()
            found.text = denied.reason or found.text
            return found
        case SkillFailed(reason=str() as reason) if reason:
            _log.warning("a skill was stopped", skill=skill.name, reason=reason)
            found = errors.internal()
            found.text = str(error)
            return found
    _log.error("a skill failed", skill=skill.name, exc_info=error.__cause__ or error)
    return errors.internal()


class _Artifact(msgspec.Struct):
    type: str
    texts: list[str]
    ended: bool = False
    said: int = 0
    """The number of parts that this execution has produced; those recorded before are not published
    again.
    """


class Parts:
    """The artifact parts of one task, including those of its earlier executions.

    Args:
        recorded: the parts on disk, in order.
        most_bytes: the maximum size of their texts together.
    """

    def __init__(self, recorded: Iterable[Output], most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._artifacts: dict[str, _Artifact] = {}
        self._shown: list[Output] = []
        for part in recorded:
            self.shown(part)

    @property
    def all(self) -> Sequence[Output]:
        """All parts in the order in which they were published."""
        return tuple(self._shown)

    def next(self, name: str, text: str, media_type: str, *, last: bool) -> Output | None:
        """Return the next part of an artifact; None if an earlier execution has published it.

        Raises ValueError with a sentence for the skill's author.
        """
        artifact = self._artifacts.get(name)
        if artifact is None:
            artifact = _Artifact(media_type, [])
        number = artifact.said
        artifact.said += 1
        if number < len(artifact.texts):
            return None
        if artifact.ended:
            raise ValueError(f"the artifact {name!r} has had its last part")
        if artifact.type != media_type:
            raise ValueError(f"the artifact {name!r} is {artifact.type}, not {media_type}")
        if self._bytes + len(text.encode()) > self._most_bytes:
            artifact.said -= 1
            raise ValueError(f"the artifacts of one task may have at most {self._most_bytes} bytes")
        self._artifacts[name] = artifact
        return Output(name=name, type=media_type, part=number, last=last, text=text)

    def shown(self, part: Output) -> None:
        """Record that a part was published."""
        artifact = self._artifacts.setdefault(part.name, _Artifact(part.type, []))
        artifact.texts.append(part.text)
        artifact.ended = part.last
        self._bytes += len(part.text.encode())
        self._shown.append(part)

    def completed(self, result: Result) -> Result:
        """Return the result with every artifact complete (ART-004); an artifact that the skill also
        returned appears once.
        """
        whole = {
            name: Output(name=name, type=artifact.type, text="".join(artifact.texts))
            for name, artifact in self._artifacts.items()
        }
        given = tuple([one for one in result.outputs if whole.get(one.name) != one])
        return msgspec.structs.replace(result, outputs=(*whole.values(), *given))
