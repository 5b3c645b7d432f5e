"""Delegation: path, rights, limits, and forwarding."""

from collections.abc import Callable
from decimal import Decimal
from xml.sax.saxutils import quoteattr

from conformance.model import Ability, check
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.delegation import NAMESPACE, Delegation
from xep.fluux_agent.errors import Denied
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Execute, Result
from xep.fluux_agent.skills import NAMESPACE as SKILLS
from xep.fluux_agent.skills import SkillsQuery

DELEGATION = f"{AGENT}#delegation"
_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_SPENT = "<usage duration-ms='1' tokens-in='40' tokens-out='2' cost-usd='0.01'/>"


def bare(address: str) -> str:
    """Return the address without its resource: agents are hosted there."""
    return address.partition("/")[0]


def _delegation(t: Talk, *via: str, origin: str | None = None, **limits: str) -> str:
    heads = {"max-hops": "4", **limits}
    path = "".join(f"<via>{one}</via>" for one in via or (bare(t.who.caller),))
    spelled = "".join(f" {name}={quoteattr(text)}" for name, text in heads.items())
    origin = origin or f"alice@{bare(t.who.caller).rpartition('@')[2]}"
    return f"<delegation xmlns='{NAMESPACE}' origin='{origin}'{spelled}>{path}</delegation>"


def _of(asked: Received) -> Delegation:
    request = asked.head.payload(Execute)
    assert request is not None
    assert request.delegation is not None
    return request.delegation


def is_execute(stanza: Received) -> bool:
    """Return whether it is an execute request."""
    return stanza.head.kind == "iq" and stanza.head.sole_child == Execute.xml.tag


def _result(asked: Received) -> str | None:
    """Return the answer of a peer that obeys."""
    if not is_execute(asked):
        return None
    done = f"<output name='result'>done</output>{_SPENT}"
    return f"<result xmlns='{EXECUTE}' skill='echo'>{done}</result>"


def _refusing(error: str) -> Callable[[Received], str | None]:
    return lambda asked: error if is_execute(asked) else None


@check("delegation.path", "DLG-003", "DLG-004", "DLG-005", "DLG-009", features=[DELEGATION],
       roles=("echo",))  # fmt: skip
async def path(t: Talk) -> None:
    """A path that ends with another sender, has a cycle, or is too long is refused."""
    mine, target = bare(t.who.caller), bare(t.target.address)
    said = {"text": "x"}
    answer = await t.execute("echo", said, extra=_delegation(t, f"another-{mine}"))
    t.holds_error("DLG-003", answer, "bad-request", "malformed", why="the last <via/> is another")
    answer = await t.execute("echo", said, extra=_delegation(t, target, mine))
    t.holds_error("DLG-004", answer, "not-allowed", "loop", why="it stands in the path itself")
    others = [f"agent{number}.{mine}" for number in range(2)]
    long = _delegation(t, *others, mine, **{"max-hops": "2"})
    answer = await t.execute("echo", said, extra=long)
    t.holds_error("DLG-005", answer, "not-allowed", "hops-exceeded")
    answer = await t.execute("echo", said, extra=_delegation(t))
    t.hold("DLG-009", not answer.is_error, "a result: the sender may do it", answer)


@check("delegation.sender", "DLG-009", "DLG-010", "SEC-014", features=[DELEGATION],
       roles=("echo",), needs=[Ability.REFUSED])  # fmt: skip
async def sender(t: Talk) -> None:
    """An origin gives no rights; it is subject to the policy itself."""
    mine, other = bare(t.who.caller), bare(t.refused)
    borrowed = _delegation(t, other, origin=mine)
    answer = await t.execute("echo", {"text": "x"}, extra=borrowed, sender=t.refused)
    for id_ in ("DLG-009", "SEC-014"):
        t.holds_error(id_, answer, "service-unavailable", None, why="the sender is refused")
    answer = await t.execute("echo", {"text": "x"}, extra=_delegation(t, origin=other))
    t.hold("DLG-010", answer.is_error, "an error: policy refuses the origin", answer)


@check("delegation.pass-on", "DLG-006", "DLG-008", "DLG-013", "DLG-015", features=[DELEGATION],
       roles=("delegate",), needs=[Ability.PEER], alone=True)  # fmt: skip
async def pass_on(t: Talk) -> None:
    """Delegated work states its origin, path and limits."""
    t.play(_result)
    limits = {"budget-usd": "0.50", "budget-tokens": "600", "trace": _TRACE}
    given = _delegation(t, **limits)
    params = {"peer": bare(t.peer), "text": "x"}
    answer = await t.execute("delegate", params, extra=given)
    asked = await t.next(is_execute)
    t.hold("DLG-006", DELEGATION in asked.xml, "a <delegation/>", asked)
    t.need(DELEGATION in asked.xml, "What was passed on has no <delegation/> to look at.")
    told = _of(asked)
    mine, target = bare(t.who.caller), bare(t.target.address)
    ok = str(told.origin).startswith("alice@") and [str(o) for o in told.via] == [mine, target]
    t.hold("DLG-006", ok, f"the origin, and the path {mine}, {target}", asked)
    trace, before = (told.trace or "").split("-"), _TRACE.split("-")
    ok = len(trace) == 4 and trace[1] == before[1] and trace[2] != before[2]
    t.hold("DLG-008", ok, f"the trace {before[1]} with a parent of its own", asked)
    usd, tokens = told.budget_usd, told.budget_tokens
    ok = told.max_hops <= 4 and usd is not None and usd <= Decimal("0.50")
    ok = ok and tokens is not None and tokens <= 600
    t.hold("DLG-013", ok, "limits that are not larger, and none left out", asked)
    used = t.given(answer, Result, "Delegating").usage
    spent = (used.tokens_in or 0, used.tokens_out or 0) if used is not None else (0, 0)
    ok = spent[0] >= 40 and spent[1] >= 2
    t.hold("DLG-015", ok, "<usage/> with what the peer has spent", answer)


@check("delegation.no-send", "DLG-007", features=[DELEGATION], roles=("delegate",),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def no_send(t: Talk) -> None:
    """Work is not delegated to an agent in the path, or beyond the maximum number of hops."""
    t.play(_result)
    mine, peer = bare(t.who.caller), bare(t.peer)
    params = {"peer": bare(t.peer), "text": "x"}
    for given, why in (
        (_delegation(t, peer, mine), "the peer stands in the path"),
        (_delegation(t, **{"max-hops": "1"}), "the path would be longer than max-hops"),
    ):
        answer = await t.execute("delegate", params, extra=given)
        asked = await t.quiet(is_execute)
        t.hold("DLG-007", asked is None, f"nothing sent: {why}", asked or "")
        t.hold("DLG-007", answer.is_error or "is-error" in answer.xml, f"a no: {why}", answer)


@check("delegation.budget", "DLG-014", features=[DELEGATION], roles=("spend",))
async def budget(t: Talk) -> None:
    """Work that exceeds its budget is refused, or fails."""
    given = _delegation(t, **{"budget-tokens": "10"})
    answer = await t.execute("spend", {"tokens": "1000"}, extra=given)
    names = answer.agent_conditions
    t.hold("DLG-014", names == ["budget-exhausted"], "<budget-exhausted/>", answer)


@check("delegation.failure", "DLG-021", "ERR-009", features=[DELEGATION], roles=("delegate",),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def failure(t: Talk) -> None:
    """A failure of a peer is a remote failure, unless its condition says more."""
    errors, stanzas = f"{AGENT}#errors", "urn:ietf:params:xml:ns:xmpp-stanzas"
    for condition, own, wanted in (
        ("forbidden", "forbidden", "remote-failure"),
        ("not-allowed", "loop", "loop"),
        ("not-allowed", "denied", "denied"),
        ("not-acceptable", "deadline-expired", "deadline-expired"),
    ):
        helps = " helps='approval'" if own == "denied" else ""
        error = (
            f"<error type='cancel'><{condition} xmlns='{stanzas}'/>"
            f"<{own} xmlns='{errors}'{helps}/></error>"
        )
        t.play(_refusing(error))
        params = {"peer": bare(t.peer), "text": own}
        answer = await t.execute("delegate", params, extra=_delegation(t))
        ok = answer.agent_conditions == [wanted]
        t.hold("DLG-021", ok, f"<{wanted}/>, for the peer said <{own}/>", answer)
        if own == "denied":
            kept = _helps(answer) == "approval"
            t.hold("ERR-009", kept, "helps='approval', as the peer said", answer)


def _helps(answer: Received) -> str | None:
    """What helps, as the denial in an error says."""
    conditions = answer.error.application
    return next((one.helps for one in conditions if isinstance(one, Denied)), None)


@check("delegation.unannotated", "SKL-002", features=[DELEGATION], roles=("delegate",),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def unannotated(t: Talk) -> None:
    """Work of a peer without annotations must not run twice: its time-out is not repeatable."""
    title = "<title xml:lang='en'>Echo</title>"
    skill = f"<skill name='echo' version='1.0.0'>{title}</skill>"
    late = (
        "<error type='cancel'><remote-server-timeout"
        " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
        f"<timeout xmlns='{AGENT}#errors'/></error>"
    )

    def part(asked: Received) -> str | None:
        if asked.head.sole_child == SkillsQuery.xml.tag:
            return f"<query xmlns='{SKILLS}' version='1' ttl='60'>{skill}</query>"
        return late if is_execute(asked) else None

    t.play(part)
    answer = await t.execute("delegate", {"peer": bare(t.peer), "text": "x"}, extra=_delegation(t))
    await t.next(is_execute)
    again = await t.quiet(is_execute)
    t.hold("SKL-002", again is None, "it is not asked for once more", again or "")
    t.need(answer.is_error, "A peer that did not finish in time is no error to it.")
    expected = "the type cancel: whether the skill may be repeated is not said"
    t.hold("SKL-002", answer.error.type == "cancel", expected, answer)


@check("delegation.least", "SEC-015", "PRV-004", features=[DELEGATION], roles=("delegate", "echo"),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def least(t: Talk) -> None:
    """Data that the principal has shown only to the target is not passed on."""
    t.play(_result)
    token, earlier = f"token-{t.new_id()}", f"earlier-{t.new_id()}"
    await t.execute("echo", {"text": earlier})
    credentials = f"<credentials xmlns='urn:example:credentials'>Bearer {token}</credentials>"
    await t.execute(
        "delegate", {"peer": bare(t.peer), "text": "x"}, extra=_delegation(t) + credentials
    )
    asked = await t.next(is_execute)
    t.hold("SEC-015", token not in asked.xml, "no credentials of the principal", asked)
    t.hold("PRV-004", earlier not in asked.xml, "nothing of an earlier request", asked)
    resource = t.who.caller.partition("/")[2]
    t.hold("PRV-004", resource not in asked.xml, "not by which device it was asked", asked)


CHECKS = (path, sender, pass_on, no_send, budget, failure, unannotated, least)
