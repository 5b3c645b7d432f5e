"""Delegation: path, rights, limits, and forwarding."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from xml.sax.saxutils import quoteattr

from conformance.checks.confirmation import CONFIRM, asks_about
from conformance.checks.follow import ENDS, TASKS, Outcome, event_of, next_event, outcome
from conformance.model import Ability, check
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.binding import encode
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.confirm import NAMESPACE as CONFIRMATION
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.delegation import NAMESPACE, Delegation
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Accepted, Execute
from xep.fluux_agent.skills import NAMESPACE as SKILLS
from xep.fluux_agent.skills import SkillsQuery
from xep.fluux_agent.task import Cancel

DELEGATION = f"{AGENT}#delegation"
_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_SPENT = "<usage duration-ms='1' tokens-in='40' tokens-out='2' cost-usd='0.01'/>"


def bare(address: str) -> str:
    """Return the address without its resource: agents are hosted there."""
    return address.partition("/")[0]


def origin_of(t: Talk) -> str:
    """Return the person for whom the kit lets the target work, who is admitted herself."""
    return bare(t.who.stranger or t.who.caller)


def _delegation(t: Talk, *via: str, origin: str | None = None, **limits: str) -> str:
    heads = {"max-hops": "4", **limits}
    path = "".join(f"<via>{one}</via>" for one in via or (bare(t.who.caller),))
    spelled = "".join(f" {name}={quoteattr(text)}" for name, text in heads.items())
    origin = origin or origin_of(t)
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


@check("delegation.form", "DLG-023", features=[DELEGATION], roles=("echo",))
async def form(t: Talk) -> None:
    """A delegation that cannot be true is refused."""
    mine = bare(t.who.caller)
    users = mine.rpartition("@")[2]
    longest = [f"agent{number}.{users}" for number in range(16)]
    for why, given in (
        ("the origin has a resource", _delegation(t, origin=f"{origin_of(t)}/desk")),
        ("a <via/> has a resource", _delegation(t, f"agent.{users}/desk", mine)),
        ("there are 17 <via/>", _delegation(t, *longest, mine, **{"max-hops": "20"})),
        ("max-hops is negative", _delegation(t, **{"max-hops": "-1"})),
        ("budget-usd is negative", _delegation(t, **{"budget-usd": "-0.01"})),
        ("budget-tokens is negative", _delegation(t, **{"budget-tokens": "-1"})),
        ("trace is no traceparent", _delegation(t, trace="trace-1")),
        ("trace has no identifier", _delegation(t, trace=f"00-{'0' * 32}-{'0' * 16}-01")),
    ):
        answer = await t.execute("echo", {"text": "x"}, extra=given)
        t.holds_error("DLG-023", answer, "bad-request", "malformed", why=why)


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
    end = datetime.now(UTC) + timedelta(minutes=5)
    deadline = end.isoformat(timespec="seconds").replace("+00:00", "Z")
    answer = await t.execute("delegate", params, extra=given, deadline=deadline)
    asked = await t.next(is_execute)
    t.hold("DLG-006", DELEGATION in asked.xml, "a <delegation/>", asked)
    t.need(DELEGATION in asked.xml, "What was passed on has no <delegation/> to look at.")
    told = _of(asked)
    mine, sender = bare(t.who.caller), bare(asked.head.sender or "")
    ok = str(told.origin) == origin_of(t) and [str(o) for o in told.via] == [mine, sender]
    t.hold("DLG-006", ok, f"the origin, and the path {mine}, {sender}", asked)
    trace, before = (told.trace or "").split("-"), _TRACE.split("-")
    ok = len(trace) == 4 and trace[1] == before[1] and trace[2] != before[2]
    t.hold("DLG-008", ok, f"the trace {before[1]} with a parent of its own", asked)
    usd, tokens = told.budget_usd, told.budget_tokens
    ok = told.max_hops <= 4 and usd is not None and usd <= Decimal("0.50")
    ok = ok and tokens is not None and tokens <= 600
    t.hold("DLG-013", ok, "limits that are not larger, and none left out", asked)
    request = asked.head.payload(Execute)
    ok = request is not None and request.deadline is not None and request.deadline <= end
    t.hold("DLG-013", ok, f"a deadline that is not after {deadline}", asked)
    ended = await outcome(t, answer)
    t.need(ended.result is not None, "Delegating gave no result.")
    tokens_in, tokens_out, _ = _spent(ended)
    ok = tokens_in >= 40 and tokens_out >= 2
    t.hold("DLG-015", ok, "<usage/> with what the peer has spent", ended.message)


def _spent(ended: Outcome) -> tuple[int, int, Decimal]:
    used = None if ended.result is None else ended.result.usage
    if used is None:
        return 0, 0, Decimal(0)
    return used.tokens_in or 0, used.tokens_out or 0, used.cost_usd or Decimal(0)


@check("delegation.unknown-usage", "DLG-025", features=[DELEGATION], roles=("delegate",),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def unknown_usage(t: Talk) -> None:
    """Work of a peer that does not say what it has spent counts with its whole budget."""
    silent = f"<result xmlns='{EXECUTE}' skill='echo'><output name='result'>done</output></result>"
    t.play(lambda asked: silent if is_execute(asked) else None)
    given = _delegation(t, **{"budget-usd": "0.50", "budget-tokens": "600"})
    answer = await t.execute("delegate", {"peer": bare(t.peer), "text": "x"}, extra=given)
    told = _of(await t.next(is_execute))
    ended = await outcome(t, answer)
    t.need(ended.result is not None, "Delegating gave no result.")
    tokens_in, tokens_out, usd = _spent(ended)
    ok = tokens_in + tokens_out >= (told.budget_tokens or 0) and usd >= (told.budget_usd or 0)
    expected = (
        f"<usage/> of {told.budget_tokens} tokens and {told.budget_usd} USD, all it was given"
    )
    t.hold("DLG-025", ok, expected, ended.message)


@check("delegation.repeated", "DLG-026", features=[DELEGATION], roles=("delegate",),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def repeated(t: Talk) -> None:
    """A request that was not answered is sent again with the same content."""
    asked: list[Received] = []
    bounce = (
        "<error type='wait'><remote-server-timeout"
        " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    )

    def part(one: Received) -> str | None:
        if not is_execute(one):
            return None
        asked.append(one)
        return bounce if len(asked) == 1 else _result(one)

    t.play(part)
    given = _delegation(t, **{"budget-tokens": "600", "trace": _TRACE})
    answer = await t.execute("delegate", {"peer": bare(t.peer), "text": "x"}, extra=given)
    await outcome(t, answer)
    first = asked[0].head.payload(Execute)
    assert first is not None
    for name in ("deadline", "request"):
        has = getattr(first, name) is not None
        t.hold("DLG-026", has, f"the attribute {name}", asked[0])
    same = len(asked) > 1 and asked[1].head.payload(Execute) == first
    expected = "the same request again, the delegation included"
    t.hold("DLG-026", same, expected, asked[1] if len(asked) > 1 else "it did not come")


@check("delegation.threads", "DLG-027", "DLG-028", features=[DELEGATION, TASKS],
       roles=("delegate", "ask"), needs=[Ability.PEER], alone=True)  # fmt: skip
async def threads(t: Talk) -> None:
    """What is said about delegated work has the thread of its request."""
    t.play(_result)
    names: list[str | None] = []
    for _ in range(2):
        answer = await t.execute("delegate", {"peer": bare(t.peer), "text": "x"})
        asked = await t.next(is_execute)
        request = asked.head.payload(Execute)
        names.append(None if request is None else request.thread)
        await outcome(t, answer)
    ok = None not in names and len(set(names)) == 2
    t.hold("DLG-027", ok, "a thread in each request, which the other does not have", asked)
    mine = t.new_id()
    answer = await t.execute(
        "ask", {"question": "Which one?"}, extra=_delegation(t), mode="async", thread=mine
    )
    made = t.given(answer, Accepted, "Delegating to it as a task")
    for _ in range(2):
        message, event = await next_event(t, made.task)
        t.hold("DLG-028", message.thread == mine, f"the thread {mine}", message)
        if event.state == "input-required":
            break
    await t.iq("set", Cancel(id=made.task))


@check("delegation.decided", "DLG-029", features=[DELEGATION, TASKS, CONFIRM], roles=("erase",),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def decided(t: Talk) -> None:
    """An agent decides about delegated work by IQ, with the digest, and not in words."""
    t.play(lambda _: None)
    params = {"target": f"shelf {t.new_id()}"}
    answer = await t.execute(
        "erase", params, extra=_delegation(t, bare(t.peer)), sender=t.peer, mode="async"
    )
    made = t.given(answer, Accepted, "Delegating something destructive to it")
    question = await t.next(asks_about(made.task))
    asked = t.given(question, Confirm, "The question")
    await t.message("yes", sender=t.peer, thread=question.thread)
    begun = ("running", *ENDS)

    def begins(stanza: Received) -> bool:
        event = event_of(stanza, made.task)
        return event is not None and event.state in begun

    early = await t.quiet(begins)
    t.hold("DLG-029", early is None, "nothing happens: words do not decide", early or "")
    given = f"<decision xmlns='{CONFIRMATION}' id='{asked.id}' value='approve'"
    told = await t.iq("set", f"{given}/>", sender=t.peer)
    why = "the decision has no digest"
    t.holds_error("DLG-029", told, "bad-request", "malformed", why=why)
    assert asked.hash is not None
    told = await t.iq("set", f"{given}>{encode(asked.hash)}</decision>", sender=t.peer)
    t.hold("DLG-029", not told.is_error, "the decision with the digest counts", told)
    await next_event(t, made.task, *ENDS)


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
        ended = await outcome(t, answer)
        failed = ended.result is None or ended.result.is_error
        t.hold("DLG-007", failed, f"a no: {why}", ended.message)


@check("delegation.budget", "DLG-014", features=[DELEGATION], roles=("spend",))
async def budget(t: Talk) -> None:
    """Work that exceeds its budget is refused, or fails."""
    given = _delegation(t, **{"budget-tokens": "10"})
    answer = await t.execute("spend", {"tokens": "1000"}, extra=given)
    ended = await outcome(t, answer)
    ok = ended.conditions == ("budget-exhausted",)
    t.hold("DLG-014", ok, "<budget-exhausted/>", ended.message)


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
        ("not-acceptable", "budget-exhausted", "budget-exhausted"),
        ("internal-server-error", "outcome-unknown", "outcome-unknown"),
        ("not-allowed", "hops-exceeded", "hops-exceeded"),
    ):
        helps = " helps='approval'" if own == "denied" else ""
        error = (
            f"<error type='cancel'><{condition} xmlns='{stanzas}'/>"
            f"<{own} xmlns='{errors}'{helps}/></error>"
        )
        t.play(_refusing(error))
        params = {"peer": bare(t.peer), "text": own}
        answer = await t.execute("delegate", params, extra=_delegation(t))
        ended = await outcome(t, answer)
        ok = ended.conditions == (wanted,)
        t.hold("DLG-021", ok, f"<{wanted}/>, for the peer said <{own}/>", ended.message)
        if own == "denied":
            kept = ended.helps == "approval"
            t.hold("ERR-009", kept, "helps='approval', as the peer said", ended.message)


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
    ended = await outcome(t, answer)
    t.need(ended.result is None, "A peer that did not finish in time is no error to it.")
    expected = "a failure that may not be repeated: nobody says that the skill may be"
    t.hold("SKL-002", not ended.repeatable, expected, ended.message)


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


CHECKS = (
    *(path, form, sender, pass_on, unknown_usage, repeated, threads, decided),
    *(no_send, budget, failure, unannotated, least),
)
