"""What a skill gave, as it is answered: a result, or the error of the specification's table."""

import structlog

from component.skills.declare import AnySkill
from component.skills.errors import Denied, InvalidParam, SkillFailed, SkillTimeout
from component.skills.outputs import SkillResult
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, Result, Usage
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.tasks")


def result_of(skill: AnySkill, made: SkillResult) -> Result:
    """The result of a skill. Artifacts without a name get one that no other has (EXE-011)."""
    if len(made.outputs) == 1:
        (only,) = made.outputs
        outputs = [Output(name=only.name or "output", type=only.media_type, text=only.text)]
    else:
        outputs = _named(made)
    return Result(
        skill=skill.name,
        is_error=made.is_error,
        outputs=tuple(outputs),
        usage=Usage(duration_ms=round(made.duration * 1000)),
    )


def _named(made: SkillResult) -> list[Output]:
    taken = {output.name for output in made.outputs if output.name}
    outputs: list[Output] = []
    for number, one in enumerate(made.outputs):
        name = one.name or ("output" if number == 0 else f"output-{number + 1}")
        while one.name is None and name in taken:
            name += "-"
        taken.add(name)
        outputs.append(Output(name=name, type=one.media_type, text=one.text))
    return outputs


def checked(skill: AnySkill, result: Result, most_bytes: int) -> Result | StanzaError:
    """The result, or why it cannot be sent: two artifacts of one name, or too much."""
    names = [output.name for output in result.outputs]
    if len(set(names)) != len(names):
        _log.error("a skill gave two outputs of one name", skill=skill.name, names=names)
        return errors.internal()
    size = len(encode(result).encode())
    return result if size <= most_bytes else errors.too_big(most_bytes)


def error_of(skill: AnySkill, error: Exception) -> StanzaError:
    """The stanza error for what `component.skills.native.call` raised."""
    match error:
        case InvalidParam(name=None):
            return errors.malformed(str(error))
        case InvalidParam(name=str() as name):
            found = errors.invalid_param(name, error.reason)
            found.text = str(error)  # the path inside the parameter, where there is one
            return found
        case SkillTimeout():
            return errors.timed_out(repeatable=skill.annotations.repeatable)
        case SkillFailed(__cause__=Denied() as denied):
            found = errors.denied()
            found.text = denied.reason or found.text
            return found
    _log.error("a skill failed", skill=skill.name, exc_info=error.__cause__ or error)
    return errors.internal()
