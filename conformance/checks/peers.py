"""An agent requests something that a person would have to confirm, but there is no person."""

from conformance.checks.confirmation import CONFIRM
from conformance.checks.follow import next_event
from conformance.model import Ability, check
from conformance.talk import Talk
from xep.fluux_agent.execute import Accepted, Result

_SHELF = "the shelf of a peer"
_DECIDED = ("running", "input-required", "rejected", "completed", "failed", "cancelled")


@check("confirm.unavailable", "CNF-001", "CNF-005", "CNF-006", "CNF-052", "CNF-057", "DSC-005",
       features=[CONFIRM], roles=("erase",), needs=[Ability.PEER])  # fmt: skip
async def unavailable(t: Talk) -> None:
    """Work for an agent never runs unconfirmed, and only persons named by the policy are asked."""
    t.play(lambda _: None)
    answer = await t.execute("erase", {"target": _SHELF}, sender=t.peer)
    ran = not answer.is_error and answer.payload(Result) is not None
    accepted = None if answer.is_error else answer.payload(Accepted)
    broke = answer.stanza_conditions in (["internal-server-error"], ["undefined-condition"])
    if accepted is None:
        t.holds_error("CNF-005", answer, "not-allowed", "confirmation-unavailable")
        for id_ in ("CNF-052", "CNF-057"):
            t.hold(id_, True, "it is refused before it is accepted")
    else:
        # It finds out only now that we are not a person; or it asks somebody whom its policy names.
        _, decided = await next_event(t, accepted.task, *_DECIDED)
        ran, broke = decided.state in ("running", "completed"), decided.state == "failed"
        ends = decided.state == "rejected"
        t.hold("CNF-005", ends or decided.state == "input-required", "a question, or a refusal")
        conditions = decided.failure.conditions if decided.failure else ()
        said = [type(one).xml.local for one in conditions]
        right = not ends or said == ["confirmation-unavailable"]
        t.hold("CNF-052", right, "rejected with <confirmation-unavailable/>", ", ".join(said))
        may = not ends or (decided.failure is not None and decided.failure.repeatable)
        t.hold("CNF-057", may, "repeatable='true': nothing has run")
    t.hold("CNF-001", not ran, "a question, or a refusal, before it runs", answer)
    expected = "the same with a field in our disco#info that nobody knows"
    t.hold("DSC-005", not broke, expected, answer)
    asked = await t.quiet(lambda s: _SHELF in s.xml and s.head.kind == "message")
    t.hold("CNF-006", asked is None, "nobody of ours is asked", asked or "")


CHECKS = (unavailable,)
