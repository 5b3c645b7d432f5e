"""Admission and Replay, as far as answers within the IQ show it."""

from conformance.checks.modes import PAST
from conformance.model import Ability, check
from conformance.stanzas import Received
from conformance.talk import Talk


def _content(stanza: Received) -> str:
    """Return an answer without what differs between two deliveries: its address and id."""
    xml = stanza.xml.replace(f"'{stanza.head.id}'", "'ID'")
    return xml.replace(f"'{stanza.head.to}'", "'TO'")


def _first_count(t: Talk, first: Received) -> Received:
    """Return the answer to a first request to count."""
    t.need(t.text(first, "Counting") == "1", "Counting did not begin with 1.")
    return first


def _kept(t: Talk) -> None:
    t.need(
        t.target.number("replay_seconds", 0) > 0,
        "The form has no replay_seconds: nothing says that repetitions are recognised.",
    )


@check("replay.order", "RPL-001", roles=("add", "hidden"))
async def order(t: Talk) -> None:
    """A request with several faults is refused for the first one."""
    wrong = {"a": "one", "b": "2"}
    unknown_task = "<earlier task='t-no-such-task'/>"
    cases: list[tuple[str, str, str, str]] = [
        ("no-such-skill", "item-not-found", "unknown-skill", "the skill goes first"),
        (t.skill("add").name, "item-not-found", "unknown-task", "then earlier tasks"),
    ]
    for skill, condition, application, why in cases:
        answer = await t.execute(
            f"={skill}", wrong, extra=unknown_task, mode="async", deadline=PAST
        )
        t.holds_error("RPL-001", answer, condition, application, why=why)
    if not t.target.serves("task"):
        answer = await t.execute("add", wrong, mode="async", deadline=PAST)
        why = "the mode goes before the deadline"
        t.holds_error("RPL-001", answer, "feature-not-implemented", "mode-unavailable", why=why)
    answer = await t.execute("add", wrong, deadline=PAST)
    why = "the deadline goes before the parameters"
    t.holds_error("RPL-001", answer, "not-acceptable", "deadline-expired", why=why)
    answer = await t.execute("=no-such-skill", wrong, mode="later")
    why = "what is malformed goes before everything"
    t.holds_error("RPL-001", answer, "bad-request", "malformed", why=why)


@check("replay.refused-nothing", "RPL-003", roles=("count",))
async def refused(t: Talk) -> None:
    """A request that admission refused leaves no record: its id can be used for a valid request."""
    key, request = t.new_id(), t.new_id()
    first = await t.execute("count", {"key": key}, request=request, deadline=PAST)
    t.need(first.is_error, "A request past its deadline was not refused.")
    answer = await t.execute("count", {"key": key}, request=request)
    ok = not answer.is_error
    expected = "a result: the refusal before it has left no record"
    if t.hold("RPL-003", ok, expected, answer):
        t.hold("RPL-003", t.text(answer, "Counting") == "1", "nothing ran before", answer)


@check("replay.same", "RPL-009", roles=("count",))
async def same(t: Talk) -> None:
    """The same request again gets the same answer, and nothing runs again."""
    _kept(t)
    key, request = t.new_id(), t.new_id()
    first = _first_count(t, await t.execute("count", {"key": key}, request=request))
    again = await t.execute("count", {"key": key}, request=request)
    same_answer = _content(first) == _content(again)
    t.hold("RPL-009", same_answer, "the answer of the first", again)
    after = await t.execute("count", {"key": key})
    expected = "2: the repetition did not run"
    t.hold("RPL-009", t.text(after, "Counting") == "2", expected, after)


@check("replay.key-request", "RPL-005", roles=("count",), needs=[Ability.RESOURCE])
async def key_request(t: Talk) -> None:
    """A request id is recognised from any resource of the principal."""
    _kept(t)
    key, request = t.new_id(), t.new_id()
    first = _first_count(t, await t.execute("count", {"key": key}, request=request))
    again = await t.execute("count", {"key": key}, request=request, sender=t.other)
    expected = "the answer of the first, for it is the same principal"
    t.hold("RPL-005", _content(first) == _content(again), expected, again)


@check("replay.key-iq", "RPL-006", roles=("count",), needs=[Ability.ORIGIN, Ability.RESOURCE])
async def key_iq(t: Talk) -> None:
    """Without a request id the id of the IQ is used, for one full JID and one content."""
    _kept(t)
    key, id_ = t.new_id(), t.new_id()
    first = _first_count(t, await t.execute("count", {"key": key}, id_=id_))
    again = await t.execute("count", {"key": key}, id_=id_)
    t.hold("RPL-006", _content(first) == _content(again), "the answer of the first", again)
    other = await t.execute("count", {"key": key}, id_=id_, sender=t.other)
    expected = "2: another resource's id is its own"
    t.hold("RPL-006", t.text(other, "Counting") == "2", expected, other)


@check("replay.iq-content", "RPL-006", roles=("count",), needs=[Ability.ORIGIN])
async def iq_content(t: Talk) -> None:
    """Different content with the same id of an IQ is new work, neither a repetition nor a
    conflict.
    """
    _kept(t)
    key, id_ = t.new_id(), t.new_id()
    first = _first_count(t, await t.execute("count", {"key": key}, id_=id_))
    for expected, attributes in (("2", {"thread": "other"}), ("3", {"priority": "high"})):
        answer = await t.execute("count", {"key": key}, id_=id_, having=attributes)
        told = f"{expected}: it is new work, for its content is another"
        ok = not answer.is_error
        if t.hold("RPL-006", ok, told, answer):
            t.hold("RPL-006", t.text(answer, "Counting") == expected, told, answer)
    again = await t.execute("count", {"key": key}, id_=id_)
    t.hold("RPL-006", _content(first) == _content(again), "the answer of the first", again)


@check("replay.conflict", "RPL-012", roles=("count",))
async def conflict(t: Talk) -> None:
    """The key of one request with the content of another is a conflict."""
    _kept(t)
    key, request = t.new_id(), t.new_id()
    first = await t.execute("count", {"key": key}, request=request)
    t.need(not first.is_error, "The first request did not work.")
    for params, attributes in (
        ({"key": f"{key}-other"}, {}),
        ({"key": key}, {"mode": "inline"}),
        ({"key": key}, {"context": "x-other"}),
        ({"key": key}, {"thread": "other"}),
        ({"key": key}, {"priority": "high"}),
    ):
        answer = await t.execute("count", params, request=request, having=attributes)
        t.holds_error("RPL-012", answer, "conflict", "conflict", why=str(attributes or params))
    again = await t.execute("count", {"key": key}, request=request)
    t.hold("RPL-012", _content(first) == _content(again), "the first stands as it is", again)


@check("replay.content", "RPL-009", roles=("add",))
async def content(t: Talk) -> None:
    """Order of names, white space, unknown attributes and time offsets do not change the
    content.
    """
    _kept(t)
    request = t.new_id()
    deadline = "2190-01-01T12:00:00Z"
    first = await t.execute("add", {"a": "1", "b": "2"}, request=request, deadline=deadline)
    t.need(not first.is_error, "The first request did not work.")
    skill = t.skill("add")
    a, b = skill.param("a"), skill.param("b")
    payload = (
        f"<f:execute xmlns:f='urn:fluux:agent:0#execute' skill='{skill.name}' request='{request}'"
        f" deadline='2190-01-01T13:00:00.000+01:00' strange='1'>\n"
        f"  <f:param name='{b}'>2</f:param>\n  <f:param name='{a}'>1</f:param>\n"
        f"{t.fixed('add', 'f:param')}</f:execute>"
    )
    again = await t.iq("set", payload)
    expected = "the answer of the first: it is the same content"
    t.hold("RPL-009", _content(first) == _content(again), expected, again)


@check("replay.failures", "RPL-013", roles=("fail",))
async def failures(t: Talk) -> None:
    """The outcome of work is recorded even if it is an error."""
    _kept(t)
    request = t.new_id()
    first = await t.execute("fail", {"message": "no"}, request=request)
    again = await t.execute("fail", {"message": "no"}, request=request)
    t.hold("RPL-013", _content(first) == _content(again), "the answer of the first", again)
    other = await t.execute("fail", {"message": "another"}, request=request)
    t.holds_error("RPL-013", other, "conflict", "conflict", why="a record is kept of it")


@check("replay.scope", "SEC-006", roles=("count",), needs=[Ability.STRANGER])
async def scope(t: Talk) -> None:
    """A record is found only by the principal that it was made for."""
    _kept(t)
    key, request = t.new_id(), t.new_id()
    _first_count(t, await t.execute("count", {"key": key}, request=request))
    other = await t.execute("count", {"key": key}, request=request, sender=t.stranger)
    expected = "2: work of the stranger's own, though the id is the same"
    ok = not other.is_error
    if t.hold("SEC-006", ok, expected, other):
        t.hold("SEC-006", t.text(other, "Counting") == "2", expected, other)


@check("replay.under-way", "RPL-011", roles=("sleep",))
async def under_way(t: Talk) -> None:
    """A repetition of a running request gets the same outcome, or a retry hint."""
    _kept(t)
    request, one, two = t.new_id(), t.new_id(), t.new_id()
    payload = t.request("sleep", {"seconds": "0.8"}, request=request)
    await t.begin("set", payload, id_=one)
    await t.begin("set", payload, id_=two)
    second = await t.answer(two)
    first = await t.answer(one)
    # An agent that handles both at once may start with either.
    refused = [each for each in (first, second) if each.is_error]
    t.need(len(refused) < 2, "Neither request worked.")
    if refused:
        expected = "<retry/>, or the same outcome"
        t.hold("RPL-011", "retry" in refused[0].agent_conditions, expected, refused[0])
    else:
        t.hold("RPL-011", _content(first) == _content(second), "the same outcome", second)


@check("replay.window", "RPL-016")
async def window(t: Talk) -> None:
    """The replay window is announced, if repetitions are recognised."""
    seconds = t.target.number("replay_seconds", 0)
    t.hold("RPL-016", seconds > 0, "replay_seconds in the form", str(seconds))


CHECKS = (
    order,
    refused,
    same,
    key_request,
    key_iq,
    iq_content,
    conflict,
    content,
    failures,
    scope,
    under_way,
    window,
)
