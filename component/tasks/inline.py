"""Requests that are answered at once: of skills that never wait and may run again, without a name.

Nearly all short execute IQs are of this kind. Their result is text of XML as soon as the skill has
returned, and a repetition gets the same text. What is constant is computed once for each skill. The
order of the checks is that of `component.tasks.admission`, which serves all other requests; the
rows of the table that are not here concern only those.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from component import system
from component.skills import InvalidParam, Skill, SkillFailed
from component.skills.calling import became
from component.skills.declare import FunctionSkill
from component.skills.inputs import Arguments
from component.skills.outputs import as_result
from component.skills.params import prepare_texts
from component.store.clock import seconds_since_boot
from component.tasks.events import TaskRecords
from component.tasks.gate import SkillAccess
from component.tasks.outputs import REFERENCE_BYTES, error_of, result_of, size_of
from component.tasks.request import SMALL, UNNAMED_WINDOW_S, Request
from xep.binding import RawXML, encode
from xep.fluux_agent.execute import Execute, Param
from xep.jid import JID
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

_TEXT: Final = "\ue000"
_MS: Final = 1_234_567_890_123
"""In a sample of a result, these are in the place of its text and of its milliseconds."""
_NO_MS: Final = 0.0005
"""Shorter durations have no milliseconds."""
_SKILLS: Final = 4096
"""The number of skills that are remembered."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_ENTRY_BYTES: Final = 512
"""The approximate size of an answer in memory without its texts."""
_name = attrgetter("name")

_LONGEST: Final = 4_000
"""A longer text is measured."""

_Outcome: TypeAlias = RawXML | StanzaError


class _Key(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The key of a request without a name: who has asked which address, and the whole content."""

    requester: JID
    target: JID
    id: str | None
    skill: str
    mode: str
    priority: str
    params: tuple[Param, ...]


class _InlineSkill:
    """A skill, and the XML around the text of its results.

    Attributes:
        fits: whether requests for it can be answered here: not if a result was too large.
        only: the name of its only parameter, if any text is a value of that; else empty.
        call: takes that text.
    """

    __slots__ = ("after", "before", "between", "call", "fits", "only", "skill")

    def __init__(self, skill: Skill, *, asks: bool) -> None:
        self.skill = skill
        self.fits = (
            skill.at_once
            and not asks
            and not skill.wants_context
            and not skill.capabilities
            and skill.complete is None
        )
        self.only = ""
        self.call: Callable[..., Any] = skill.invoke
        if (
            isinstance(skill, FunctionSkill)
            and skill.inputs.plain
            and len(skill.inputs.params) == 1
        ):
            self.only = skill.inputs.params[0].name
            self.call = skill.function
        sample = encode(result_of(skill, as_result(_TEXT, _MS / 1000)))
        self.before, _, rest = sample.partition(_TEXT)
        self.between, _, self.after = rest.partition(str(_MS))


class InlineRequests:
    """Answers what can be answered at once, and repetitions of that.

    Answers are kept in two halves. When the younger half is full, or has existed for the minute in
    which a repetition is recognised, it takes the place of the older one, which is dropped. So
    storing an answer costs little, and each is kept for its minute unless there are too many.

    Args:
        skills: the skills, and who may use them.
        records: records the outcomes.
        clock: seconds that do not jump, and continue while the machine is suspended.
    """

    def __init__(
        self,
        skills: SkillAccess,
        records: TaskRecords,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._view = skills.gate.view
        self._needs_grants = skills.gate.needs_grants
        self._approvers = skills.approvers
        self._let_in = skills.let_in
        self._ran = records.ran
        self._clock = clock
        self._perf_counter = system.current().perf_counter
        self._skills: dict[str, _InlineSkill] = {}
        self._young: dict[_Key, tuple[_Outcome, float]] = {}
        self._old: dict[_Key, tuple[_Outcome, float]] = {}
        self._left = _MOST_BYTES // 2
        """Bytes that are free in the younger half."""
        self._full_at = 0.0

    def answer(
        self, execute: Execute, requester: JID, principal: JID, target: JID, stanza: Incoming
    ) -> RawXML | None:
        """Return the result as XML; None if `Admission` has to serve the request.

        Raises the StanzaErrors of the specification's error table.
        """
        find = self._view(principal).get
        skill = find(execute.skill)
        if (
            skill is None
            or execute.mode == "async"
            or stanza.size >= SMALL
            or execute.request is not None
            or execute.deadline is not None
            or execute.context is not None
            or execute.thread is not None
            or execute.json_params is not None
            or execute.earlier
            or execute.delegation is not None
            or execute.version is not None
        ):
            return None
        known = self._skills.get(skill.name)
        if known is None or known.skill is not skill:
            request = Request(skill.name, principal, requester, target)
            known = self._remember(skill, asks=self._approvers.needed(request, skill))
        if not known.fits or self._needs_grants(principal):
            return None

        params = execute.params
        if len(params) > 1:  # the order of parameters with different names does not count
            params = tuple(sorted(params, key=_name))
        key = _Key(requester, target, stanza.id, skill.name, execute.mode, execute.priority, params)
        found = self._young.get(key) or self._old.get(key)
        if found is not None and found[1] > self._clock():
            outcome = found[0]
        else:
            if len(params) == 1 and params[0].name == known.only:
                arguments: Arguments | str = params[0].text
            else:
                try:
                    arguments = prepare_texts(skill, execute.params)
                except InvalidParam as error:
                    raise error_of(skill, error) from error
            self._let_in(principal)
            run = self._run(known, arguments, principal)
            if run is None:
                known.fits = False
                return None
            outcome = run
            self._put(key, outcome, stanza.size)
        if isinstance(outcome, StanzaError):
            raise outcome.copy()
        return outcome

    def policy_changed(self) -> None:
        """Find anew for which skills a confirmation is needed."""
        self._skills.clear()

    def _remember(self, skill: Skill, *, asks: bool) -> _InlineSkill:
        if len(self._skills) >= _SKILLS:
            self._skills.clear()
        known = self._skills[skill.name] = _InlineSkill(skill, asks=asks)
        return known

    def _run(
        self, known: _InlineSkill, arguments: Arguments | str, principal: JID
    ) -> _Outcome | None:
        """Run a skill with its arguments, or the text of its `only` parameter; an error is an
        outcome, too (RPL-013). None: its result is so large that a part is given by reference.
        """
        skill, call = known.skill, known.call
        perf_counter = self._perf_counter
        began = perf_counter()
        try:
            value = call(arguments) if isinstance(arguments, str) else skill.invoke(arguments, None)
            seconds = perf_counter() - began
            # Printable text has no character that is replaced in a result.
            if (
                type(value) is str
                and value.isprintable()
                and value
                and "&" not in value
                and "<" not in value
                and ">" not in value
                and len(value) <= _LONGEST
            ):
                made = None
            else:
                made = skill.result(value, seconds)
                if sum(map(size_of, made.outputs)) > REFERENCE_BYTES:
                    return None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it becomes an outcome
            seconds = perf_counter() - began
            try:
                made = became(skill, error, began)
            except (InvalidParam, SkillFailed) as failed:
                self._ran(principal, skill.name, "failed", seconds)
                return error_of(skill, failed)
        self._ran(principal, skill.name, "done", seconds)
        if made is not None:
            return RawXML(encode(result_of(skill, made)))
        milliseconds = 0 if seconds < _NO_MS else round(seconds * 1000)
        return RawXML(f"{known.before}{value}{known.between}{milliseconds}{known.after}")

    def _put(self, key: _Key, outcome: _Outcome, size: int) -> None:
        """Store an outcome for repetitions; one that is too large is not stored."""
        size += _ENTRY_BYTES + (len(outcome.text) if isinstance(outcome, RawXML) else 0)
        now = self._clock()
        if size > self._left or now >= self._full_at:
            if size > _MOST_BYTES // 2:
                return
            self._old, self._young = self._young, {}
            self._left = _MOST_BYTES // 2
            self._full_at = now + UNNAMED_WINDOW_S
        self._left -= size
        self._young[key] = outcome, now + UNNAMED_WINDOW_S
