"""Confirmation: who is asked, what is shown, and which answer counts."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec
import rfc8785

from conformance.checks.follow import ENDS, begin, get, next_event, task
from conformance.model import Ability, check
from conformance.post import Where
from conformance.stanzas import CLIENT, Received
from conformance.talk import Talk
from xep.disco import InfoQuery
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.confirm import NAMESPACE, Confirm
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import NAMESPACE as TASK
from xep.fluux_agent.task import Cancel
from xep.hashes import NAMESPACE as HASHES
from xep.quick_responses import NAMESPACE as QUICK
from xep.reactions import NAMESPACE as REACTIONS
from xep.reactions import RESTRICTIONS

CONFIRM = f"{AGENT}#confirm"
_MANY = 150
_ENOUGH = timedelta(minutes=2)


def asks_about(task_id: str) -> Where:
    """Return a condition for messages that ask for the confirmation of a task; its events do not
    count.
    """

    def where(stanza: Received) -> bool:
        found = stanza.tree.findall(f"{{{NAMESPACE}}}confirm")
        return any(one.get("task", task_id) == task_id for one in found)

    return where


async def asks(
    t: Talk, target: str = "the archive", **attributes: str
) -> tuple[str, Received, Confirm]:
    """Execute a destructive skill; return the task, and the message with the question."""
    attributes.setdefault("mode", "auto")
    made = await begin(t, "erase", {"target": target}, **attributes)
    bare = t.who.caller.partition("/")[0]
    message = await t.next(asks_about(made.task))
    t.need((message.head.to or "").startswith(bare), "Somebody else was asked.")
    confirm = t.given(message, Confirm, "The question")
    return made.task, message, confirm


def decision(confirm: Confirm, value: str, content: str = "", attributes: str = "") -> str:
    """Return a decision on a question, for an IQ."""
    start = f"<decision xmlns='{NAMESPACE}' id='{confirm.id}' value='{value}' {attributes}>"
    return f"{start}{content}</decision>"


def _conditions(event: Any) -> list[str]:
    return [type(one).xml.local for one in (event.failure.conditions if event.failure else ())]


async def is_open(t: Talk, id_: str) -> bool:
    """Return whether a task still waits for its answer."""
    return (await task(t, id_)).state == "input-required"


@check(
    "confirm.question",
    "CNF-002",
    "CNF-004",
    "CNF-008",
    "CNF-009",
    "CNF-010",
    "CNF-011",
    "CNF-013",
    "CNF-014",
    "CNF-018",
    "ACC-001",
    "ACC-004",
    features=[CONFIRM],
    roles=("erase",),
)
async def question(t: Talk) -> None:
    """A destructive skill asks its principal, with all necessary information."""
    answer = await t.execute("erase", {"target": "the archive"})
    made = t.decoded("CNF-002", answer, Accepted, "<accepted/>: a person is asked first")
    message = await t.next(asks_about(made.task))
    bare = t.who.caller.partition("/")[0]
    to = (message.head.to or "").partition("/")
    t.hold("CNF-004", to[0] == bare, f"the principal is asked, {bare}", message)
    t.hold("CNF-008", not to[2] or not t.sees_all, f"to {bare}", message)
    t.hold("CNF-008", message.head.type == "chat", "a message of type chat", message)
    elements = message.tree.findall(f"{{{NAMESPACE}}}confirm")
    t.hold("CNF-008", len(elements) == 1, "one <confirm/>", message)
    bodies = message.tree.findall(f"{CLIENT}body")
    said = " ".join(body.text or "" for body in bodies)
    ok = len(bodies) == 1 and "the archive" in said and "yes" in said and "no" in said
    t.hold("CNF-009", ok, "one <body/> with action, parameters, yes and no", message)
    t.hold("ACC-001", "the archive" in said, "what is to be decided, in the body", message)
    t.hold("CNF-010", message.thread == made.task, "the task's id as thread", message)
    confirm = t.decoded("CNF-011", message, Confirm, "<confirm/>")
    parts = (confirm.task, confirm.principal, confirm.hash, confirm.expires)
    t.hold("CNF-011", None not in parts, "task, principal, hash and expires", message)
    target = t.skill("erase").param("target")
    given = {one.name: one.text for one in confirm.action.params}
    ok = given.get(target) == "the archive"
    t.hold("CNF-013", ok, f"{target} as <param/>", message)
    ids = {one.get("id") for one in message.tree.findall(f"{{{QUICK}}}action")}
    ids.discard(f"always:{confirm.id}")
    wanted = {f"approve:{confirm.id}", f"deny:{confirm.id}"}
    values = {one.get("value") for one in message.tree.findall(f"{{{QUICK}}}response")}
    t.hold("CNF-014", ids == wanted and values >= {"yes", "no"}, "quick responses", message)
    left = (confirm.expires or datetime.now(UTC)) - datetime.now(UTC)
    t.hold("ACC-004", left >= _ENOUGH, "at least some minutes to answer", str(left))
    digest, shown = _digest(message)
    t.hold("CNF-018", digest == shown, f"the digest {digest}", message)
    await t.iq("set", decision(confirm, "deny"))


def _digest(message: Received, *, offer: bool = False) -> tuple[str, str]:
    """Return the digest computed from the message alone, and the one in the message: that of the
    question, or that of its offer of a standing approval.
    """
    confirm = message.tree.find(f"{{{NAMESPACE}}}confirm")
    assert confirm is not None
    action = confirm.find(f"{{{NAMESPACE}}}action")
    assert action is not None
    params: dict[str, Any] = {
        one.get("name", ""): one.text or "" for one in action.findall(f"{{{NAMESPACE}}}param")
    }
    json = action.findtext(f"{{{NAMESPACE}}}params")
    if json is not None:
        params |= msgspec.json.decode(json)
    digested: dict[str, Any] = {
        "agent": (message.head.sender or "").partition("/")[0],
        "confirmation": confirm.get("id"),
        "params": params,
        "principal": confirm.get("principal"),
        "skill": action.get("type"),
        "version": action.get("version"),
    }
    holder = confirm.find(f"{{{NAMESPACE}}}standing") if offer else confirm
    assert holder is not None
    if offer:
        free = sorted(one.get("name", "") for one in holder.findall(f"{{{NAMESPACE}}}free"))
        digested |= {
            "free": free,
            "params": {name: value for name, value in params.items() if name not in free},
            "text": holder.findtext(f"{{{NAMESPACE}}}text"),
            "until": holder.get("until"),
            "uses": int(holder.get("uses", "0")),
        }
    else:
        expires = confirm.findtext(f"{{{NAMESPACE}}}expires")
        digested |= {"expires": expires, "task": confirm.get("task")}
    digest = hashlib.sha256(rfc8785.dumps(digested)).digest()
    shown = holder.findtext(f"{{{HASHES}}}hash") or ""
    return base64.b64encode(digest).decode(), shown.strip()


@check("confirm.approve", "CNF-021", "CNF-032", "CNF-033", "CNF-040", features=[CONFIRM],
       roles=("erase",))  # fmt: skip
async def approve(t: Talk) -> None:
    """Approved work runs once; the same decision again changes nothing, a different one
    conflicts.
    """
    id_, _, confirm = await asks(t)
    wrong = f"<hash xmlns='{HASHES}' algo='sha-256'>{base64.b64encode(bytes(32)).decode()}</hash>"
    other = await t.iq("set", decision(confirm, "approve", wrong))
    t.holds_error("CNF-032", other, "conflict", "conflict", why="the digest is another")
    first = await t.iq("set", decision(confirm, "approve"))
    t.hold("CNF-021", not first.is_error and len(first.tree) == 0, "an empty result", first)
    again = await t.iq("set", decision(confirm, "approve"))
    t.hold("CNF-021", not again.is_error and len(again.tree) == 0, "an empty result", again)
    late = await t.iq("set", decision(confirm, "deny"))
    t.holds_error("CNF-032", late, "conflict", "conflict", why="it has been decided")
    message, event = await next_event(t, id_, *ENDS)
    t.hold("CNF-033", event.state == "completed", "the first decision counts", message)
    texts = [one.text for one in event.result.outputs] if event.result else []
    t.hold("CNF-040", any("the archive" in one for one in texts), "what was approved", message)


@check("confirm.denied", "CNF-037", "CNF-039", features=[CONFIRM], roles=("erase",))
async def denied(t: Talk) -> None:
    """Denied work fails as denied, with the reason."""
    id_, _, confirm = await asks(t)
    await t.iq("set", decision(confirm, "deny", "<reason>only last year's</reason>"))
    message, event = await next_event(t, id_, *ENDS)
    ok = event.state == "failed" and _conditions(event) == ["denied"]
    t.hold("CNF-037", ok, "failed with <denied/>", message)
    texts = [one.text for one in event.failure.texts] if event.failure else []
    t.hold("CNF-037", "only last year's" in texts, "the reason as its text", message)
    t.hold("CNF-039", "confirmation-expired" not in _conditions(event), "no lapse", message)


@check("confirm.foreign-same", "CNF-035", "SEC-005", features=[CONFIRM], roles=("erase",),
       needs=[Ability.STRANGER])  # fmt: skip
async def foreign(t: Talk) -> None:
    """A person who was not asked can neither decide a question nor find out whether it exists."""
    id_, _, confirm = await asks(t)
    invented = msgspec.structs.replace(confirm, id="c-never-asked")
    shapes = []
    for one in (confirm, invented):
        answer = await t.iq("set", decision(one, "approve"), sender=t.stranger)
        t.holds_error("CNF-035", answer, "item-not-found", "unknown-confirmation")
        shapes.append(answer.xml.replace(answer.head.id or "", "IQ").replace(one.id, "ID"))
    t.hold("CNF-035", shapes[0] == shapes[1], "the same bytes", "\n".join(shapes))
    t.hold("SEC-005", await is_open(t, id_), "the question is open as before")
    await t.iq("set", decision(confirm, "deny"))
    answer = await t.iq("set", decision(confirm, "deny"), sender=t.stranger)
    t.holds_error("CNF-035", answer, "item-not-found", "unknown-confirmation")


@check("confirm.words", "CNF-023", "CNF-024", "CNF-025", "CNF-028", features=[CONFIRM],
       roles=("erase",))  # fmt: skip
async def words(t: Talk) -> None:
    """In words, a yes with more words approves nothing, and words after a no are the reason."""
    id_, _, _ = await asks(t)
    for doubtful in ("yes, but only last year's", "yes?", "Yes…", '"yes"', "yes\u061f"):
        await t.message(doubtful, thread=id_)
        await t.quiet(lambda s: s.thread == id_ and s.body is not None)
        t.hold("CNF-024", await is_open(t, id_), f"the question is open as before ({doubtful})")
    await t.message("No, only what is older than a year.", thread=id_)
    message, event = await next_event(t, id_, *ENDS)
    t.hold("CNF-025", _conditions(event) == ["denied"], "failed with <denied/>", message)
    texts = [one.text for one in event.failure.texts] if event.failure else []
    ok = any("only what is older than a year" in text for text in texts)
    t.hold("CNF-023", ok, "what follows the word as the reason", message)
    told = await t.quiet(
        lambda s: s.head.type == "chat" and s.body is not None and s.thread == id_, t.timeout
    )
    t.hold("CNF-028", told is not None, "a word in the chat on what came of it", "silence")


@check("i18n.yes-no", "I18-004", "CNF-025", features=[CONFIRM], roles=("erase",))
async def yes(t: Talk) -> None:
    """A yes is understood regardless of the language of the stanza."""
    id_, _, _ = await asks(t)
    await t.message(" YES! ", thread=id_, lang="tlh")
    message, event = await next_event(t, id_, *ENDS)
    t.hold("I18-004", event.state == "completed", "approved", message)
    t.hold("CNF-025", event.state == "completed", "the question of the thread", message)


@check("confirm.action", "CNF-022", "CNF-029", "CNF-030", features=[CONFIRM], roles=("erase",))
async def action(t: Talk) -> None:
    """A selected action decides, unless it is delayed, from a room, or in an error."""
    id_, _, confirm = await asks(t)
    chosen = f"<action-selected xmlns='{QUICK}' id='approve:{confirm.id}'/>"
    delay = "<delay xmlns='urn:xmpp:delay' stamp='2001-01-01T00:00:00Z'/>"
    for extra, type_, which in (
        (chosen + delay, "chat", "CNF-029"),
        (chosen, "groupchat", "CNF-030"),
        (chosen, "error", "CNF-030"),
    ):
        await t.message(None, type_=type_, extra=extra)
        t.hold(which, await is_open(t, id_), f"the question is open as before ({type_})")
    await t.message(None, extra=chosen)
    message, event = await next_event(t, id_, *ENDS)
    t.hold("CNF-022", event.state == "completed", "approved", message)


@check("confirm.reaction", "CNF-053", "CNF-054", "CNF-055", features=[CONFIRM], roles=("erase",))
async def reaction(t: Talk) -> None:
    """A thumb up approves, a thumb down denies, and no other reaction does anything."""
    for emoji, condition in (("\U0001f44d\U0001f3fd", None), ("\U0001f44e", "denied")):
        id_, message, _ = await asks(t)
        question = message.head.id or ""
        for nothing in ("<reaction>\U0001f389</reaction>", ""):
            await t.message(None, extra=_reactions(question, nothing))
            t.hold("CNF-054", await is_open(t, id_), "the question is open as before", nothing)
        await t.message(None, extra=_reactions(question, f"<reaction>{emoji}</reaction>"))
        seen, event = await next_event(t, id_, *ENDS)
        ok = _conditions(event) == ([] if condition is None else [condition])
        t.hold("CNF-053", ok, "denied" if condition else "approved", seen)
        await t.message(None, extra=_reactions(question, ""))
        t.hold("CNF-054", (await task(t, id_)).state == event.state, "as it was", str(event.state))
    answer = await t.iq("get", InfoQuery())
    info = t.decoded("CNF-055", answer, InfoQuery, "an answer to disco#info")
    types = [form.form_type for form in info.forms]
    t.hold("CNF-055", RESTRICTIONS in types, f"a form {RESTRICTIONS}", str(types))


def _reactions(question: str, content: str) -> str:
    return f"<reactions xmlns='{REACTIONS}' id={quoteattr(question)}>{content}</reactions>"


@check("confirm.valid-first", "CNF-007", features=[CONFIRM], roles=("erase",))
async def valid(t: Talk) -> None:
    """Parameters are validated before anybody is asked."""
    answer = await t.execute("erase", {})
    name = t.skill("erase").param("target")
    t.holds_error("CNF-007", answer, "bad-request", "invalid-param", name=name)


@check("execute.inline-only", "EXE-020", features=[CONFIRM], roles=("erase",))
async def inline(t: Talk) -> None:
    """In mode inline nobody can be asked."""
    answer = await t.execute("erase", {"target": "x"}, mode="inline")
    t.holds_error("EXE-020", answer, "not-allowed", "confirmation-unavailable")


@check("confirm.one", "CNF-016", features=[CONFIRM], roles=("erase",))
async def one(t: Talk) -> None:
    """A task has one open question at a time."""
    id_, _, confirm = await asks(t)
    answer = await get(t, id_)
    open_ = answer.tree.findall(f".//{{{NAMESPACE}}}confirm")
    open_ += answer.tree.findall(f".//{{{TASK}}}input")
    t.hold("CNF-016", len(open_) == 1, "one question in the task", answer)
    more = await t.quiet(lambda s: asks_about(id_)(s) and f"'{confirm.id}'" not in s.xml)
    t.hold("CNF-016", more is None, "no other question meanwhile", more or "")
    await t.iq("set", decision(confirm, "deny"))


@check("confirm.canonical", "CNF-019", features=[CONFIRM], roles=("erase",))
async def canonical(t: Talk) -> None:
    """A parameter that no digest can cover is refused as invalid."""
    name = t.skill("erase").param("target")
    answer = await t.execute("erase", values={"target": 2**53 + 1})
    t.holds_error("CNF-019", answer, "bad-request", "invalid-param", name=name)


@check("confirm.late", "CNF-036", features=[CONFIRM], roles=("erase",))
async def late(t: Talk) -> None:
    """A late answer gets an error that says so, not that the question does not exist."""
    id_, _, confirm = await asks(t)
    await t.iq("set", decision(confirm, "deny"))
    await next_event(t, id_, *ENDS)
    answer = await t.iq("set", decision(confirm, "approve"))
    t.holds_error("CNF-036", answer, "conflict", "conflict", why="it has been decided")
    invented = msgspec.structs.replace(confirm, id="c-never-asked")
    answer = await t.iq("set", decision(invented, "approve"))
    t.holds_error("CNF-036", answer, "item-not-found", "unknown-confirmation")


@check("sec.ask-rate", "SEC-012", features=[CONFIRM], roles=("erase",), alone=True,
       needs=[Ability.HOSTILE, Ability.STRANGER])  # fmt: skip
async def ask_rate(t: Talk) -> None:
    """The number of questions to a person is limited."""
    made: list[str] = []
    answer = None
    for number in range(_MANY):
        wanted = {"target": f"archive {number}"}
        answer = await t.execute("erase", wanted, sender=t.stranger, mode="async")
        if answer.is_error:
            break
        made.append(t.given(answer, Accepted, "Asking for something destructive").task)
    for id_ in made:
        await t.iq("set", Cancel(id=id_), sender=t.stranger)
    ok = answer is not None and answer.is_error
    t.hold("SEC-012", ok, f"a limit below {_MANY} open questions for one person", str(len(made)))


@check("confirm.expires", "CNF-010", "CNF-015", "CNF-034", "CNF-038", "RUL-008",
       features=[CONFIRM], roles=("erase",))  # fmt: skip
async def expires(t: Talk) -> None:
    """A question expires no later than its request, and no decision counts after it."""
    at = datetime.now(UTC) + timedelta(seconds=2)
    deadline = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    thread = t.new_id()
    id_, message, confirm = await asks(t, deadline=deadline, thread=thread)
    t.hold("CNF-010", message.thread == thread, f"the thread {thread}", message)
    ok = confirm.expires is not None and confirm.expires <= at + timedelta(milliseconds=1)
    t.hold("CNF-015", ok, f"<expires/> not after {deadline}", message)
    ended, event = await next_event(t, id_, *ENDS, within=t.timeout + 2)
    # The question expires at the very instant of its task's deadline.
    ok = _conditions(event) in (["confirmation-expired"], ["deadline-expired"])
    t.hold("CNF-038", ok and event.state == "failed", "failed, as lapsed", ended)
    late = await t.iq("set", decision(confirm, "approve"))
    t.hold("CNF-034", late.is_error, "no decision after the question has lapsed", late)
    after = await task(t, id_)
    same = (after.state, after.revision) == (event.state, event.revision)
    t.hold("RUL-008", same, "the task as it ended", f"{after.state}, {after.revision}")


@check(
    "confirm.standing",
    "CNF-074",
    "CNF-075",
    "CNF-076",
    "CNF-079",
    "CNF-080",
    "CNF-081",
    "CNF-082",
    "CNF-083",
    "CNF-084",
    "CNF-085",
    features=[CONFIRM],
    roles=("erase",),
)
async def standing(t: Talk) -> None:
    """A standing approval is offered in words after three equal approvals, and covers no more."""
    target, attribute = f"the archive {t.new_id()}", "standing='true'"
    for _ in range(3):
        id_, message, confirm = await asks(t, target)
        t.hold("CNF-075", True, "a question")
        t.hold("CNF-076", confirm.standing is None, "no offer yet", message)
        await t.iq("set", decision(confirm, "approve", attributes=attribute))
        await t.message("always", thread=id_)
        t.hold("CNF-083", await is_open(t, id_), "the question is open as before", message)
        await t.iq("set", decision(confirm, "approve"))
        await next_event(t, id_, *ENDS)
    id_, message, confirm = await asks(t, target)
    offer = confirm.standing
    if offer is None:  # nobody has to
        await t.iq("set", decision(confirm, "deny"))
        return
    t.hold("CNF-074", True, "an offer")
    ok = offer.hash is not None and offer.uses > 0 and offer.until > datetime.now(UTC)
    t.hold("CNF-079", ok and bool(offer.text.text), "until, uses, a text and a hash", message)
    body = message.body or ""
    t.hold("CNF-080", offer.text.text in body and "always" in body, "the text, always", message)
    digest, shown = _digest(message, offer=True)
    t.hold("CNF-081", digest == shown, f"the digest {digest}", message)
    refused = await t.iq("set", decision(confirm, "deny", attributes=attribute))
    t.holds_error("CNF-084", refused, "bad-request", "malformed")
    hash_ = f"<hash xmlns='{HASHES}' algo='sha-256'>{shown}</hash>"
    answer = await t.iq("set", decision(confirm, "approve", hash_, attribute))
    t.hold("CNF-082", not answer.is_error, "an empty result", answer)
    ended, event = await next_event(t, id_, *ENDS)
    t.hold("CNF-082", event.state == "completed", "this action is approved", ended)
    made = await begin(t, "erase", {"target": target}, mode="async")
    asked = await t.quiet(asks_about(made.task))
    t.hold("CNF-082", asked is None, "no question about an equal action", asked or "")
    made = await begin(t, "erase", {"target": f"{target}, all of it"}, mode="async")
    asked = await t.quiet(asks_about(made.task), t.timeout)
    t.hold("CNF-085", asked is not None, "a question about another action", "silence")
    if asked is not None:
        await t.iq("set", decision(t.given(asked, Confirm, "The question"), "deny"))


@check("confirm.newest", "CNF-026", features=[CONFIRM], roles=("erase",), alone=True)
async def newest(t: Talk) -> None:
    """A word that names no question decides one's own newest question, even if there are others."""
    one, _, first = await asks(t)
    two, _, _ = await asks(t)
    await t.message("no")
    message, event = await next_event(t, two, *ENDS)
    t.hold("CNF-026", _conditions(event) == ["denied"], "failed with <denied/>", message)
    t.hold("CNF-026", await is_open(t, one), "the older question is open as before")
    await t.message("no")
    message, event = await next_event(t, one, *ENDS)
    t.hold("CNF-026", _conditions(event) == ["denied"], "failed with <denied/>", message)
    late = await t.iq("set", decision(first, "approve"))
    t.hold("CNF-026", late.is_error, "no decision after that one", late)


CHECKS = (
    question,
    approve,
    denied,
    foreign,
    words,
    yes,
    action,
    reaction,
    valid,
    inline,
    expires,
    newest,
    standing,
    one,
    canonical,
    late,
    ask_rate,
)
