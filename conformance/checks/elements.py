"""Common Rules: Elements and Attributes, JSON."""

from datetime import UTC, datetime, timedelta

from conformance.model import check
from conformance.talk import Talk
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Result


@check("wire.unknown", "COM-010", roles=("echo",))
async def unknown(t: Talk) -> None:
    """Unknown attributes and child elements are ignored."""
    extra = "<strange xmlns='urn:example:strange' a='b'><param name='text'/></strange><param2/>"
    answer = await t.execute("echo", {"text": "known"}, extra=extra, colour="blue")
    result = t.decoded("COM-010", answer, Result, "the result, unknown things ignored")
    texts = [output.text for output in result.outputs]
    t.hold("COM-010", texts == ["known"], "the result of what is known", answer)


@check("wire.order", "COM-011", roles=("add",))
async def order(t: Talk) -> None:
    """Child elements are accepted in any order."""
    skill = t.skill("add")
    payload = (
        f"<execute xmlns='{EXECUTE}' skill='{skill.name}'>"
        f"<params type='application/json'>{{\"{skill.param('b')}\": 3}}</params>"
        f"<param name='{skill.param('a')}'>2</param>{t.fixed('add')}</execute>"
    )
    answer = await t.iq("set", payload)
    result = t.decoded("COM-011", answer, Result, "a result, though <params/> stands first")
    t.hold("COM-011", [one.text for one in result.outputs] == ["5"], "2 + 3 = 5", answer)


@check("wire.malformed", "COM-013", roles=("echo",))
async def malformed(t: Talk) -> None:
    """A payload that lacks a required part, or has a value of the wrong type, is malformed."""
    name = t.skill("echo").name
    for payload, why in (
        (f"<execute xmlns='{EXECUTE}'/>", "it names no skill"),
        (f"<execute xmlns='{EXECUTE}' skill='{name}'><param>x</param></execute>", "no name"),
        (f"<execute xmlns='{EXECUTE}' skill='{name}' mode='later'/>", "there is no such mode"),
        (f"<execute xmlns='{EXECUTE}' skill='{name}' deadline='soon'/>", "that is no time"),
        (f"<execute xmlns='{EXECUTE}' skill='{name}' priority='top'/>", "no such priority"),
    ):
        answer = await t.iq("set", payload)
        t.holds_error("COM-013", answer, "bad-request", "malformed", why=why)


@check("wire.instants", "COM-016", roles=("echo",))
async def instants(t: Talk) -> None:
    """Times are compared as instants, offsets and fractions of a second included."""
    now = datetime.now(UTC)
    # Each of these means the opposite if it is read without its offset.
    later = (now + timedelta(hours=1)).replace(tzinfo=None) - timedelta(hours=11)
    earlier = (now - timedelta(hours=1)).replace(tzinfo=None) + timedelta(hours=11)
    future = f"{later.isoformat(timespec='milliseconds')}-11:00"
    past = f"{earlier.isoformat(timespec='milliseconds')}+11:00"
    answer = await t.execute("echo", {"text": "in time"}, deadline=future)
    t.hold("COM-016", not answer.is_error, f"a result: {future} lies ahead", answer)
    answer = await t.execute("echo", {"text": "too late"}, deadline=past)
    why = f"{past} has passed"
    t.holds_error("COM-016", answer, "not-acceptable", "deadline-expired", why=why)


@check("json.refused", "COM-020", "EXE-008", roles=("echo",))
async def json_refused(t: Talk) -> None:
    """Text that is not JSON, and JSON that is not an object, are malformed."""
    name = t.skill("echo").name
    for text in ("{", "{'text': 'x'}", "", "{} {}", '{"text": NaN}'):
        payload = f"<execute xmlns='{EXECUTE}' skill='{name}'><params>{text}</params></execute>"
        answer = await t.iq("set", payload)
        why = f"{text!r} is not JSON"
        t.holds_error("COM-020", answer, "bad-request", "malformed", why=why)
    for text in ("[]", '"text"', "1", "null", "true"):
        payload = f"<execute xmlns='{EXECUTE}' skill='{name}'><params>{text}</params></execute>"
        answer = await t.iq("set", payload)
        why = f"{text} is no object"
        t.holds_error("EXE-008", answer, "bad-request", "malformed", why=why)


@check("json.same-value", "COM-021", roles=("count",))
async def same_value(t: Talk) -> None:
    """An object with a repeated member name is refused, or always interpreted in the same way."""
    skill = t.skill("count")
    name, key = skill.param("key"), t.new_id()
    first, second = f"{key}-first", f"{key}-second"
    json = f'{{"{name}": "{first}", "{name}": "{second}"}}'
    inside = f"{t.fixed('count')}<params>{json}</params>"
    payload = f"<execute xmlns='{EXECUTE}' skill='{skill.name}'>{inside}</execute>"
    answer = await t.iq("set", payload)
    if answer.is_error:
        conditions = answer.agent_conditions
        ok = conditions in (["malformed"], ["invalid-param"])
        t.hold("COM-021", ok, "the object is refused, or one of its values is used", answer)
        return
    counted = []
    for one in (first, second):
        again = await t.execute("count", {"key": one})
        counted.append(t.text(again, "Counting"))
    ok = sorted(counted) == ["1", "2"]
    t.hold("COM-021", ok, "exactly one of the two values has run, once", f"counts: {counted}")


CHECKS = (unknown, order, malformed, instants, json_refused, same_value)
