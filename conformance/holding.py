"""The findings of one check: compares what was received with requirements."""

from typing import TypeVar

from conformance.model import Check, Finding
from conformance.stanzas import Received
from xep.binding import ContentError, Payload
from xep.fluux_agent.execute import Result

P = TypeVar("P", bound=Payload)


class BlockedError(Exception):
    """A precondition of the check failed; the sentence says which."""


class NoAnswerError(BlockedError):
    """An IQ was not answered in time."""


class Holding:
    """The findings of one check.

    Args:
        check: the check.

    Attributes:
        findings: the violated requirements so far.
        held: the requirements that were tested so far.
    """

    def __init__(self, check: Check) -> None:
        self.check = check
        self.findings: list[Finding] = []
        self.held: set[str] = set()

    def hold(self, id_: str, ok: bool, expected: str, got: str | Received = "") -> bool:
        """Record whether the target meets the requirement ``id_``; the check continues in either
        case.
        """
        assert id_ in self.check.observes, f"{self.check.name} does not declare {id_}"
        self.held.add(id_)
        if not ok:
            text = got if isinstance(got, str) else got.xml
            self.findings.append(Finding(id_, expected, text[:2000]))
        return ok

    def holds_error(
        self,
        id_: str,
        answer: Received,
        condition: str,
        application: str | None,
        *,
        name: str | None = None,
        why: str = "",
    ) -> bool:
        """Record whether ``answer`` is an error with this stanza condition and this condition of
        the agent protocol, with the attribute ``name`` if one is given.
        """
        expected = f"<{condition}/>" + (f" with <{application}/>" if application else "")
        if name is not None:
            expected += f" that names {name}"
        if why:
            expected += f", because {why}"
        ok = answer.is_error and answer.stanza_conditions == [condition]
        wanted = [] if application is None else [application]
        ok = ok and [one for one in answer.agent_conditions if one != "retry"] == [
            one for one in wanted if one != "retry"
        ]
        if application == "retry":
            ok = ok and "retry" in answer.agent_conditions
        if ok and name is not None:
            ok = [getattr(one, "name", None) for one in answer.error.application] == [name]
        return self.hold(id_, ok, expected, answer)

    def decoded(self, id_: str, answer: Received, cls: type[P], expected: str) -> P:
        """Return the payload of a result, which is tested for ``id_``.

        Raises:
            BlockedError: it is missing, so the check cannot continue; the requirement is violated.
        """
        try:
            payload = answer.payload(cls)
        except ContentError as error:
            payload = None
            expected += f" ({error})"
        if answer.is_error or payload is None:
            self.hold(id_, False, expected, answer)
            raise BlockedError(f"There was no <{cls.xml.local}/> to go on with.")
        self.hold(id_, True, expected)
        return payload

    def given(self, answer: Received, cls: type[P], what: str) -> P:
        """Return the payload of a result that is a precondition of the check.

        Raises:
            BlockedError: it is missing.
        """
        try:
            payload = answer.payload(cls)
        except ContentError as error:
            raise BlockedError(f"{what} does not fit its schema: {error}") from None
        if answer.is_error or payload is None:
            raise BlockedError(f"{what} did not work: {answer.xml[:500]}")
        return payload

    def text(self, answer: Received, what: str) -> str:
        """Return the text of the first artifact of a result that is a precondition of the check."""
        outputs = self.given(answer, Result, what).outputs
        if not outputs:
            raise BlockedError(f"{what} gave no artifact.")
        return outputs[0].text

    def need(self, ok: bool, what: str) -> None:
        """Raise BlockedError with ``what`` unless ``ok``."""
        if not ok:
            raise BlockedError(what)
