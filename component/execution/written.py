"""Inline skills whose results are XML text at once, because they are one plain text."""

from time import perf_counter
from typing import Final

import msgspec

from component.skills import AnySkill
from component.skills.context import Context
from component.skills.errors import InvalidParam, SkillFailed
from component.skills.native import became
from component.skills.outputs import result_of
from component.tasks.outcomes import error_of
from component.tasks.outcomes import result_of as payload_of
from xep.binding import Encoded, encode
from xep.binding.escaping import text_special
from xep.fluux_agent.execute import Result
from xep.stanza import NAMESPACE
from xep.stanza_error import StanzaError

_NO_MS: Final = 0.0005
"""Seconds below which a duration has no milliseconds."""
_TEXT: Final = "\ue000"
_MS: Final = 1234567890123
"""What stands in the sample of a result for the text and for the milliseconds."""


class Written:
    """Runs an inline skill, and writes what it gives.

    Most results of short work are one text, as `echo` gives it. All that surrounds the text is
    written once, by encoding a sample; so it is what the encoder makes of such a result.

    Attributes:
        seconds: how long the latest run took.
        wants_context: whether the skill is to be given a context.
    """

    __slots__ = (
        "_after",
        "_at_once",
        "_before",
        "_between",
        "_invoke",
        "_skill",
        "seconds",
        "wants_context",
    )

    def __init__(self, skill: AnySkill) -> None:
        self._skill = skill
        self._invoke = skill.invoke
        self.wants_context = skill.wants_context
        sample = encode(payload_of(skill, result_of(_TEXT, _MS / 1000)), NAMESPACE)
        self._before, _, rest = sample.partition(_TEXT)
        self._between, _, self._after = rest.partition(str(_MS))
        self._at_once = f"{self._between}0{self._after}"
        self.seconds = 0.0

    def run(
        self, arguments: msgspec.Struct, context: Context | None
    ) -> Encoded | Result | StanzaError:
        """What comes of it: an error too is an outcome, and is recorded (RPL-013).

        A result is XML text where that is easy: some text with nothing in it that XML would have to
        escape or replace.
        """
        invoke = self._invoke
        started = perf_counter()
        try:
            value = invoke(arguments, context)
            self.seconds = seconds = perf_counter() - started
            # What is looked at first is the quickest, and nearly always enough.
            if (
                type(value) is str
                and value
                and (
                    (
                        value.isprintable()
                        and "&" not in value
                        and "<" not in value
                        and ">" not in value
                    )
                    or text_special(value) is None
                )
            ):
                if seconds < _NO_MS:
                    return Encoded(f"{self._before}{value}{self._at_once}")
                ms = round(seconds * 1000)
                return Encoded(f"{self._before}{value}{self._between}{ms}{self._after}")
            made = self._skill.result(value, seconds)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - it becomes an answer
            self.seconds = perf_counter() - started
            try:
                made = became(self._skill, exc, started)
            except (InvalidParam, SkillFailed) as error:
                return error_of(self._skill, error)
        return payload_of(self._skill, made)
