"""Common Rules: Addresses, Who Asks."""

from conformance.model import Ability, check
from conformance.talk import Talk
from xep.disco import InfoQuery, Item, ItemsQuery
from xep.fluux_agent.skills import SkillsQuery
from xep.ping import Ping


async def agents(t: Talk) -> tuple[Item, ...]:
    """Return the agents that the domain hosts."""
    answer = await t.iq("get", ItemsQuery(), to=t.target.domain)
    items = t.given(answer, ItemsQuery, "disco#items of the domain").items
    return tuple([item for item in items if item.node is None])


@check("address.domain", "COM-001", roles=("echo",))
async def domain(t: Talk) -> None:
    """The domain serves requests as its default agent, and answers itself."""
    info = await t.iq("get", InfoQuery(), to=t.target.domain)
    features = {one.var for one in t.given(info, InfoQuery, "disco#info of the domain").features}
    expected = "a component that hosts agents serves requests to its domain, and answers from it"
    if "urn:fluux:agent:0" not in features and not t.target.is_component:
        # An account on an ordinary server: no component hosts it.
        t.hold("COM-001", True, expected)
        return
    answer = await t.execute("echo", {"text": "domain"}, to=t.target.domain)
    ok = not answer.is_error and answer.head.sender == t.target.domain
    t.hold("COM-001", ok, expected, answer)


@check("principal.resource", "COM-005", roles=("echo",), needs=[Ability.RESOURCE])
async def resource(t: Talk) -> None:
    """Each resource of a principal may do what the principal may."""
    first = await t.execute("echo", {"text": "one"})
    t.need(not first.is_error, "The caller's first resource could not execute echo.")
    second = await t.execute("echo", {"text": "two"}, sender=t.other)
    t.hold("COM-005", not second.is_error, "a result for another resource too", second)


@check("principal.refused", "COM-007", needs=[Ability.REFUSED])
async def refused(t: Talk) -> None:
    """A refused sender gets the same error, whatever it requests."""
    answers = [
        await t.iq("get", InfoQuery(), sender=t.refused),
        await t.iq("get", SkillsQuery(), sender=t.refused),
        await t.iq("get", Ping(), sender=t.refused),
        await t.iq("set", t.request("echo", {"text": "x"}), sender=t.refused),
        await t.iq("set", t.request("=no-such-skill"), sender=t.refused),
        await t.iq("set", "<nothing xmlns='urn:example:nothing'/>", sender=t.refused),
    ]
    for answer in answers:
        t.holds_error("COM-007", answer, "service-unavailable", None)
    shapes = {answer.xml.replace(answer.head.id or "", "ID") for answer in answers}
    t.hold("COM-007", len(shapes) == 1, "the same error each time", "\n".join(sorted(shapes)))


@check("principal.silence", "COM-008", needs=[Ability.REFUSED])
async def silence(t: Talk) -> None:
    """A refused sender gets no answer to messages and presence."""
    await t.message("/help", sender=t.refused)
    target = t.target.address
    await t.send(t.refused, f"<presence from='{t.refused}' to='{target}' type='subscribe'/>")
    await t.send(t.refused, f"<presence from='{t.refused}' to='{target}' type='probe'/>")
    bare = t.refused.partition("/")[0]
    came = await t.quiet(lambda s: (s.head.to or "").partition("/")[0] == bare)
    t.hold("COM-008", came is None, "no message and no presence", came or "")


CHECKS = (domain, resource, refused, silence)
