"""Attacks within a stated budget: malformed, deep, wide, huge or forged stanzas."""

from itertools import cycle

from conformance.holding import BlockedError, NoAnswerError
from conformance.model import Ability, check
from conformance.post import Where
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent.skills import SkillsQuery

BUDGET = 512 * 1024
"""The maximum size of one attack in bytes, unless the target itself announces that it
accepts more.
"""
_FLOOD = 300
"""Requests in one flood."""


def _result_of(id_: str) -> Where:
    def where(stanza: Received) -> bool:
        return stanza.head.id == id_ and stanza.head.type == "result"

    return where


async def _alive(t: Talk, id_: str) -> None:
    """Record whether the stream continues."""
    try:
        answer = await t.iq("get", SkillsQuery())
        t.hold(id_, not answer.is_error, "the stream goes on, and others are served", answer)
    except BlockedError:
        t.hold(id_, False, "the stream goes on, and others are served", "no answer any more")


async def _attempt(t: Talk, payload: str, id_: str) -> Received | None:
    try:
        return await t.iq("set", payload, within=max(t.timeout, 5))
    except NoAnswerError:
        t.hold(id_, False, "an answer", "none came")
        return None


@check("attack.deep", "RUL-002", roles=("echo",), needs=[Ability.RAW])
async def deep(t: Talk) -> None:
    """A stanza that is nested too deeply is refused, and the stream continues."""
    nest = "<a xmlns='urn:example:deep'>" + "<a>" * 4999 + "</a>" * 5000
    answer = await _attempt(t, t.request("echo", {"text": "x"}, None, nest), "RUL-002")
    if answer is not None:
        if answer.is_error:
            t.holds_error("RUL-002", answer, "policy-violation", "too-big")
        else:
            t.hold("RUL-002", True, "5000 levels are not too deep for it")
    await _alive(t, "RUL-002")


@check("attack.wide", "RUL-002", roles=("echo",), needs=[Ability.RAW])
async def wide(t: Talk) -> None:
    """A stanza with too many elements is refused, and the stream continues."""
    crowd = "<a xmlns='urn:example:wide'>" + "<b/>" * 30_000 + "</a>"
    answer = await _attempt(t, t.request("echo", {"text": "x"}, None, crowd), "RUL-002")
    if answer is not None:
        if answer.is_error:
            t.holds_error("RUL-002", answer, "policy-violation", "too-big")
        else:
            t.hold("RUL-002", True, "30000 elements are not too many for it")
    await _alive(t, "RUL-002")


@check("attack.huge", "RUL-002", roles=("echo",), needs=[Ability.RAW])
async def huge(t: Talk) -> None:
    """A stanza that is too large is refused, and the stream continues."""
    limit = t.target.number("max_stanza_bytes", 262144)
    t.need(limit <= 8 * BUDGET, f"It takes stanzas of {limit} bytes: too much for an attack.")
    answer = await _attempt(t, t.request("echo", {"text": "x" * (limit + 1)}), "RUL-002")
    if answer is not None:
        t.holds_error("RUL-002", answer, "policy-violation", "too-big")
    await _alive(t, "RUL-002")


@check("attack.iq", "RUL-004", needs=[Ability.RAW])
async def malformed_iqs(t: Talk) -> None:
    """An IQ without a child, or with several, gets exactly one answer: an error."""
    skills = "<query xmlns='urn:fluux:agent:0#skills'/>"
    for content in ("", skills + skills, "text", "<query xmlns=''/>"):
        for type_ in ("get", "set"):
            try:
                answer = await t.iq(type_, content)
            except NoAnswerError:
                t.hold("RUL-004", False, f"an answer to an IQ that holds {content!r}", "none")
                continue
            t.hold("RUL-004", answer.is_error, f"an error to {content!r}", answer)
    await _alive(t, "RUL-004")


@check("attack.results", "RUL-004", needs=[Ability.RAW])
async def results(t: Talk) -> None:
    """Unrequested answers, and errors, are not answered."""
    before = t.new_id()
    for type_ in ("result", "error"):
        id_ = t.new_id()
        caller, target = t.who.caller, t.target.address
        await t.send(caller, f"<iq from='{caller}' to='{target}' type='{type_}' id='{id_}'/>")
    came = await t.quiet(lambda s: s.head.kind == "iq")
    t.hold("RUL-004", came is None, f"silence after {before}", came or "")
    await _alive(t, "RUL-004")


@check("attack.payload", "COM-013", roles=("echo",))
async def payload(t: Talk) -> None:
    """Payloads with a known name and invalid content are malformed."""
    for type_, xml in (
        ("get", "<query xmlns='urn:fluux:agent:0#skills' unchanged='perhaps'/>"),
        ("get", "<query xmlns='urn:fluux:agent:0#skills' ttl='soon'/>"),
        (
            "set",
            t.request("echo", None, None, "<params>{}</params>" * 2),
        ),
    ):
        answer = await t.iq(type_, xml)
        t.holds_error("COM-013", answer, "bad-request", "malformed", why=xml)


@check("attack.identifiers", "COM-017", roles=("echo",))
async def identifiers(t: Talk) -> None:
    """Invalid identifiers are refused."""
    for attributes in (
        {"request": "a b"},
        {"request": "x" * 129},
        {"context": "ü"},
        {"request": "../x"},
    ):
        answer = await t.execute("echo", {"text": "x"}, having=attributes)
        t.holds_error("COM-017", answer, "bad-request", "malformed", why=str(attributes))


@check("attack.claimed-sender", "COM-004", roles=("count",), needs=[Ability.STRANGER])
async def claimed(t: Talk) -> None:
    """The sender of a stanza is the one that its server states, whatever its content claims."""
    mine, request = t.who.caller, t.new_id()
    first = await t.execute("count", {"key": request}, request=request)
    t.need(not first.is_error, "Counting did not work.")
    claims = (
        "<addresses xmlns='http://jabber.org/protocol/address'>"
        f"<address type='ofrom' jid='{mine}'/></addresses>"
        f"<principal xmlns='urn:example:claim'>{mine}</principal>"
    )
    answer = await t.execute(
        "count",
        {"key": f"{request}-2"},
        extra=claims,
        sender=t.stranger,
        having={"request": request, "from": mine, "principal": mine},
    )
    # For the caller this would be another request under the same id: a conflict.
    ok = not answer.is_error and t.text(answer, "Counting") == "1"
    t.hold("COM-004", ok, "the stranger's own request, under an id of the stranger's", answer)


@check("attack.spoofed-from", "COM-004", "COM-006", needs=[Ability.RAW])
async def spoofed(t: Talk) -> None:
    """A sender whose address is similar to the caller's is not treated as the caller."""
    target = t.target.address
    skills = "<query xmlns='urn:fluux:agent:0#skills'/>"
    local, _, rest = t.who.caller.partition("@")
    for strange in (f"{local}\u2603\u200b@{rest}", f"@{rest}", f"{local} x@{rest}"):
        id_ = t.new_id()
        await t.send(
            t.who.caller, f"<iq from='{strange}' to='{target}' type='get' id='{id_}'>{skills}</iq>"
        )
        came = await t.quiet(_result_of(id_), 0.3)
        for one in ("COM-004", "COM-006"):
            t.hold(one, came is None, f"no result for {strange!r}", came or "")
    await _alive(t, "COM-004")


@check("attack.flood", "RUL-003", "SEC-009", roles=("sleep",), needs=[Ability.STRANGER], alone=True)
async def flood(t: Talk) -> None:
    """One principal that sends too many requests is refused, and others are still served."""
    share = t.target.number("requests_per_principal", 0)
    t.need(0 < share < _FLOOD, f"requests_per_principal is {share}: too many for a flood.")
    # Servers let each stream of a client send some 40 requests per second, so use all of them.
    asked = list(zip((t.new_id() for _ in range(share + 20)), cycle(t.streams), strict=False))
    # On a slow machine the first must not be over before the last is sent.
    limit = t.target.number("inline_seconds", 0) or 10
    wanted = t.request("sleep", {"seconds": f"{min(t.timeout / 2, 0.8 * limit, 5):g}"})
    for id_, sender in asked:
        await t.begin("set", wanted, id_=id_, sender=sender)
    other = await t.execute("echo", {"text": "meanwhile"}, sender=t.stranger)
    t.hold("RUL-003", not other.is_error, "another principal is served meanwhile", other)
    answers = [await t.answer(id_, sender=by, within=t.timeout + 10) for id_, by in asked]
    over = [one for one in answers if one.is_error]
    expected = f"more than {share} requests at a time are refused"
    t.hold("SEC-009", bool(over), expected, f"{len(answers)} results")
    for one in over:
        t.holds_error("SEC-009", one, "resource-constraint", "retry")


CHECKS = (deep, wide, huge, malformed_iqs, results, payload, identifiers, claimed, spoofed, flood)
