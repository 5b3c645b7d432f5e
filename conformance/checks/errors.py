"""Errors, and Business Rules that show in them."""

from conformance.model import check
from conformance.talk import Talk
from xep.fluux_agent.execute import NAMESPACE as EXECUTE


@check("errors.each", "ERR-001", roles=("add",))
async def each(t: Talk) -> None:
    """Common failures have the errors of the table."""
    cases = [
        (f"<execute xmlns='{EXECUTE}'/>", "bad-request", "malformed"),
        (t.request("add", {"a": "x", "b": "1"}), "bad-request", "invalid-param"),
        (t.request("=no-such-skill"), "item-not-found", "unknown-skill"),
    ]
    for payload, condition, application in cases:
        answer = await t.iq("set", payload)
        t.holds_error("ERR-001", answer, condition, application)


@check("errors.unknown-payload", "ERR-001", "RUL-004")
async def unknown_payload(t: Talk) -> None:
    """An unknown payload is answered with service-unavailable, without a condition."""
    for type_, payload in (
        ("get", "<query xmlns='urn:example:nothing'/>"),
        ("set", "<query xmlns='urn:example:nothing'/>"),
        ("get", "<query xmlns='urn:fluux:agent:0#nothing'/>"),
        ("set", "<execute xmlns='urn:fluux:agent:1#execute' skill='x'/>"),
        ("set", "<perform xmlns='urn:fluux:agent:0#execute' skill='x'/>"),
    ):
        answer = await t.iq(type_, payload)
        t.hold("RUL-004", True, "an answer")
        t.holds_error("ERR-001", answer, "service-unavailable", None)


@check("errors.forbidden", "ERR-006", roles=("hidden",))
async def forbidden(t: Talk) -> None:
    """An object that the requester cannot see is never forbidden."""
    for role in (f"={t.skill('hidden').name}", "=no-such-skill"):
        answer = await t.execute(role)
        ok = "forbidden" not in (*answer.stanza_conditions, *answer.agent_conditions)
        t.hold("ERR-006", answer.is_error and ok, "an error other than <forbidden/>", answer)


CHECKS = (each, unknown_payload, forbidden)
