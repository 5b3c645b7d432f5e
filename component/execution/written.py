"""Results that are XML text at once, because they are one plain text."""

from typing import Any, Final

from component.skills import AnySkill
from component.skills.outputs import SkillResult, result_of
from component.tasks.outcomes import result_of as payload_of
from xep.binding import Encoded, encode
from xep.stanza import NAMESPACE

_TEXT: Final = "\ue000"
_MS: Final = 1234567890123
"""What stands in the sample of a result for the text and for the milliseconds."""


class Written:
    """Writes the results of a skill.

    Most results of short work are one text, as `echo` gives it. All that surrounds the text is
    written once, by encoding a sample; so it is what the encoder makes of such a result.

    Args:
        skill: the skill, whose name is in each result.
    """

    __slots__ = ("_after", "_before", "_between")

    def __init__(self, skill: AnySkill) -> None:
        sample = encode(payload_of(skill, result_of(_TEXT, _MS / 1000)), NAMESPACE)
        self._before, _, rest = sample.partition(_TEXT)
        self._between, _, self._after = rest.partition(str(_MS))

    def made(self, value: Any, duration: float) -> Encoded | SkillResult:
        """What becomes of a value that the skill returned after so many seconds.

        XML text where that is easy: some text with nothing in it that XML would have to escape or
        cannot carry. Otherwise as `component.skills.outputs.result_of`, which see.
        """
        if (
            type(value) is str
            and value
            and value.isprintable()
            and "&" not in value
            and "<" not in value
            and ">" not in value
        ):
            milliseconds = round(duration * 1000)
            return Encoded(f"{self._before}{value}{self._between}{milliseconds}{self._after}")
        return result_of(value, duration)
