"""An agent asks for something that a person would have to confirm: nobody is there to ask."""

from conformance.checks.confirmation import CONFIRM
from conformance.model import Ability, check
from conformance.talk import Talk
from xep.fluux_agent.execute import Accepted, Result

_SHELF = "the shelf of a peer"


@check("confirm.unavailable", "CNF-001", "CNF-005", "CNF-006", "DSC-005", features=[CONFIRM],
       roles=("erase",), needs=[Ability.PEER])  # fmt: skip
async def unavailable(t: Talk) -> None:
    """What an agent asks for never runs unconfirmed, and nobody is asked but who may say so."""
    t.play(lambda _: None)
    answer = await t.execute("erase", {"target": _SHELF}, sender=t.peer)
    ran = not answer.is_error and answer.payload(Result) is not None
    t.hold("CNF-001", not ran, "a question, or a refusal, before it runs", answer)
    if not answer.is_error and answer.payload(Accepted) is not None:
        # Somebody whom the target's policy names is asked: not us, for we are no person.
        t.hold("CNF-005", True, "somebody is there to ask")
    else:
        t.holds_error("CNF-005", answer, "not-allowed", "confirmation-unavailable")
    expected = "the same with a field in our disco#info that nobody knows"
    broke = answer.stanza_conditions in (["internal-server-error"], ["undefined-condition"])
    t.hold("DSC-005", not broke, expected, answer)
    asked = await t.quiet(lambda s: _SHELF in s.xml and s.head.kind == "message")
    t.hold("CNF-006", asked is None, "nobody of ours is asked", asked or "")


CHECKS = (unavailable,)
