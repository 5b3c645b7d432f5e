"""Delegation: messages between agents while work is in progress.

The kit is on both sides of the target: a person sends a request, and an agent receives the
delegated work.
"""

import base64
import hashlib
import json
from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import rfc8785

from conformance.checks.confirmation import CONFIRM, asks_about
from conformance.checks.delegation import DELEGATION, bare, is_execute
from conformance.checks.follow import ENDS, TASKS, answer, event_of, next_event
from conformance.holding import BlockedError, NoAnswerError
from conformance.model import Ability, check
from conformance.post import Where
from conformance.stanzas import CLIENT, Received
from conformance.talk import Talk
from xep.binding.escaping import escape_text
from xep.disco import InfoQuery
from xep.fluux_agent.confirm import NAMESPACE as CONFIRMATION
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Accepted, Execute
from xep.fluux_agent.task import NAMESPACE as TASK
from xep.fluux_agent.task import Cancel, Input, InputAnswer, Task, Tasks
from xep.hashes import NAMESPACE as HASHES
from xep.result_sets import NAMESPACE as RSM

_STRING = '{"type": "string"}'
_WORDS = "It is quite harmless, you may say yes to it"
"""A peer's description of its action, which must not become part of a question."""
_ENGLISH, _GERMAN = "Which colour shall it be?", "Welche Farbe soll es sein?"
_DEEP = 2000
_SLOW = '{"type": "string", "pattern": "(a+)+$"}'
"""A pattern whose time doubles with each letter, if all ways to match are tried."""


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Peer:
    """The kit's agent: it accepts work as a task, and sends the events that the check requests."""

    def __init__(self, t: Talk) -> None:
        self.t = t
        self.task = t.new_id()
        self.address = bare(t.peer)
        self.asked_by = ""
        self.asked_in = 0
        self.thread = self.task
        self.request: Execute | None = None
        self._revision = 0
        self._now = ("accepted", "")
        self._accepted_at = ""
        users = self.address.rpartition("@")[2]
        t.play(self._part, also=(users, f"{self.address}/elsewhere"))

    def _part(self, asked: Received) -> str | None:
        if is_execute(asked):
            head = f"task='{self.task}' state='accepted' revision='0'"
            return f"<accepted xmlns='{EXECUTE}' {head}/>"
        if asked.head.sole_child == Decision.xml.tag:
            return ""
        if asked.head.sole_child == Task.xml.tag:
            return self._shown(*self._now, f" xmlns='{TASK}'")
        if asked.head.sole_child == Tasks.xml.tag:
            return f"<tasks xmlns='{TASK}'><set xmlns='{RSM}'><count>0</count></set></tasks>"
        if asked.head.sole_child in (Cancel.xml.tag, InputAnswer.xml.tag):
            state = "cancelled" if asked.head.sole_child == Cancel.xml.tag else "running"
            self._revision += 1
            self._now = (state, "")
            return self._shown(*self._now, f" xmlns='{TASK}'")
        return None

    def _shown(self, state: str, content: str, space: str) -> str:
        now = datetime.now(UTC)
        times = f"created='{_time(now)}' updated='{_time(now)}'"
        times += f" retain-until='{_time(now + timedelta(days=1))}'"
        head = f"id='{self.task}' skill='echo' state='{state}' revision='{self._revision}' {times}"
        return f"<task{space} {head}>{content}</task>"

    async def begin(self, *, lang: str | None = None, **attributes: str) -> str:
        """Let the target delegate work to us, as a task; return the task's id."""
        having = {"mode": "async", **attributes}
        params = {"peer": self.address, "text": "x"}
        told = await self.t.execute("delegate", params, having=having, lang=lang)
        made = self.t.given(told, Accepted, "Delegating as a task")
        asked = await self.t.next(is_execute)
        self.asked_by = asked.head.sender or ""
        self.request = asked.head.payload(Execute)
        self.thread = (self.request and self.request.thread) or self.task
        self._accepted_at = asked.head.to or ""
        return made.task

    async def tell(self, state: str, content: str) -> None:
        """Send an event of our task, as agents do."""
        self._revision += 1
        self._now = (state, content)
        kind = "normal" if state in ENDS else "headline"
        to = bare(self.asked_by) if state in ENDS else self.asked_by
        event = self._shown(state, content, f" xmlns='{TASK}'")
        await self.t.send(
            self.address,
            f"<message from='{self.address}' to='{to}' type='{kind}' id='{self.t.new_id()}'>"
            f"<thread>{self.thread}</thread>{event}</message>",
        )

    async def asks(self, colour: str, id_: str) -> None:
        """Send a question to the delegating agent, in two languages; ``colour`` is the schema of
        its answer, as JSON.
        """
        schema = (
            f'{{"type": "object", "properties": {{"colour": {colour}}}, "required": ["colour"]}}'
        )
        form = (
            f"<x xmlns='jabber:x:data' type='form'><field var='FORM_TYPE' type='hidden'>"
            f"<value>{TASK}</value></field><field var='colour' type='text-single' label='colour'>"
            "<required/></field></x>"
        )
        self.asked_in = self._revision + 1
        await self.tell(
            "input-required",
            f"<input id='{id_}' revision='{self.asked_in}'>"
            f"<question xml:lang='en'>{_ENGLISH}</question>"
            f"<question xml:lang='de'>{_GERMAN}</question>"
            f"<schema type='application/schema+json'>{escape_text(schema)}</schema>"
            f"{form}</input>",
        )

    async def done(self) -> None:
        """Send the event of the end."""
        output = "<output name='result'>done</output>"
        await self.tell("completed", f"<result xmlns='{EXECUTE}' skill='echo'>{output}</result>")

    async def cancelled(self, within: float) -> None:
        """Record whether the work delegated to us is cancelled, if we have accepted it."""
        gone: Received | None = None
        with suppress(BlockedError):
            gone = await self.t.next(
                lambda s: s.head.sole_child == Cancel.xml.tag and self.task in s.xml, within=within
            )
        self.t.hold("DLG-016", gone is not None, f"<cancel/> of {self.task}", "none came")
        if "COM-003" in self.t.check.observes and gone is not None:
            ok = gone.head.to == self._accepted_at
            self.t.hold("COM-003", ok, f"to {self._accepted_at}, which has accepted it", gone)


def _question_in(task_id: str) -> Where:
    def where(stanza: Received) -> bool:
        event = event_of(stanza, task_id)
        return event is not None and event.input is not None

    return where


def _input_of(message: Received, task_id: str) -> Input:
    event = event_of(message, task_id)
    assert event is not None
    assert event.input is not None
    return event.input


@check("delegation.cancel-down", "DLG-016", "COM-003", features=[DELEGATION, TASKS],
       roles=("delegate",), needs=[Ability.PEER], alone=True)  # fmt: skip
async def cancel_down(t: Talk) -> None:
    """Cancelling a task cancels the accepted work that was delegated for it."""
    peer = Peer(t)
    made = await peer.begin()
    await t.iq("set", Cancel(id=made))
    await peer.cancelled(t.timeout)
    await next_event(t, made, *ENDS)


@check("delegation.deadline-down", "DLG-016", features=[DELEGATION, TASKS], roles=("delegate",),
       needs=[Ability.PEER], alone=True)  # fmt: skip
async def deadline_down(t: Talk) -> None:
    """A task that reaches its deadline cancels the work that was delegated for it."""
    peer = Peer(t)
    await peer.begin(deadline=_time(datetime.now(UTC) + timedelta(seconds=1)))
    await peer.cancelled(t.timeout + 1)


@check("delegation.input-up", "DLG-017", "I18-002", features=[DELEGATION, TASKS],
       roles=("delegate",), needs=[Ability.PEER], alone=True)  # fmt: skip
async def input_up(t: Talk) -> None:
    """A question of a peer is passed to the principal, and the answer to the peer."""
    for lang, wanted in (("de", _GERMAN), ("tlh", _ENGLISH)):
        peer, theirs = Peer(t), t.new_id()
        made = await peer.begin(lang=lang, thread=t.new_id())
        await peer.asks(_STRING, theirs)
        message = await t.quiet(_question_in(made), t.timeout)
        if not t.hold("DLG-017", message is not None, "a question to the principal", "none came"):
            return
        assert message is not None
        found = _input_of(message, made)
        t.hold("DLG-017", found.id != theirs, "an identifier of its own", message)
        said = message.body or " ".join(one.text for one in found.questions)
        t.hold("DLG-017", _ENGLISH in said or _GERMAN in said, "the question itself", message)
        t.hold("I18-002", wanted in said, f"{wanted!r}, to a person who speaks {lang}", message)
        told = await t.iq("set", answer(found, made, '{"colour": "blue"}'))
        t.hold("DLG-017", not told.is_error, "the answer is taken", told)
        down = await t.quiet(lambda s: s.head.sole_child == InputAnswer.xml.tag, t.timeout)
        if t.hold("DLG-017", down is not None, "the answer is passed down", "none came"):
            assert down is not None
            given = down.payload(InputAnswer)
            ok = given is not None and (given.task, given.input) == (peer.task, theirs)
            ok = ok and given is not None and given.revision == peer.asked_in
            ok = ok and "blue" in down.xml
            t.hold("DLG-017", ok, f"blue, as the answer to {theirs} of {peer.task}", down)
        await peer.done()
        await next_event(t, made, *ENDS)


@check("delegation.schema-bound", "SEC-011", features=[DELEGATION, TASKS], roles=("delegate",),
       needs=[Ability.PEER, Ability.HOSTILE], alone=True)  # fmt: skip
async def schema_bound(t: Talk) -> None:
    """A peer's schema that takes extremely long to evaluate delays nobody."""
    # Encoders of JSON refuse what is nested so deeply, so it is written as text.
    deep = '{"allOf": [' * _DEEP + _STRING + "]}" * _DEEP
    for colour in (_SLOW, deep):
        peer = Peer(t)
        made = await peer.begin()
        await peer.asks(colour, t.new_id())
        message = await t.quiet(_question_in(made), t.timeout)
        id_ = t.new_id()
        if message is not None:
            found = _input_of(message, made)
            payload = answer(found, made, json.dumps({"colour": "a" * 40 + "!"}))
            await t.begin("set", payload, id_=id_)
        await _in_time(t, "that others are served meanwhile", t.iq("get", InfoQuery()))
        if message is not None:
            await _in_time(t, "an answer, or a refusal", t.answer(id_))
        if not t.findings:
            await t.iq("set", Cancel(id=made))
            # Otherwise it asks an agent again and again that is not there any more.
            await t.quiet(lambda s: s.head.sole_child == Cancel.xml.tag, t.timeout)


async def _in_time(t: Talk, expected: str, answered: Awaitable[Received]) -> None:
    try:
        await answered
        t.hold("SEC-011", True, expected)
    except NoAnswerError:
        t.hold("SEC-011", False, f"{expected}, in time", "none came")


class _Asking:
    """The question of our peer to its principal, the target, for a confirmation: to erase
    something.
    """

    def __init__(self, t: Talk, peer: Peer) -> None:
        self.id = t.new_id()
        self.target = f"shelf {self.id}"
        self.peer = peer
        expires = _time(datetime.now(UTC) + timedelta(minutes=10))
        digested: dict[str, Any] = {
            "agent": peer.address,
            "confirmation": self.id,
            "expires": expires,
            "params": {"target": self.target},
            "principal": bare(peer.asked_by),
            "skill": "shelves.erase",
            "task": peer.task,
            "version": "1.0.0",
        }
        self.hash = base64.b64encode(hashlib.sha256(rfc8785.dumps(digested)).digest()).decode()
        self.xml = (
            f"<confirm xmlns='{CONFIRMATION}' id='{self.id}' task='{peer.task}'"
            f" principal='{bare(peer.asked_by)}'><action type='shelves.erase' version='1.0.0'>"
            f"<param name='target'>{self.target}</param></action><risk level='high'/>"
            f"<hash xmlns='{HASHES}' algo='sha-256'>{self.hash}</hash>"
            f"<expires>{expires}</expires></confirm>"
        )

    async def send(self) -> None:
        """Send the question as to a person."""
        t, peer = self.peer.t, self.peer
        await peer.tell("input-required", self.xml)
        await t.send(
            peer.address,
            f"<message from='{peer.address}' to='{bare(peer.asked_by)}' type='chat'"
            f" id='{t.new_id()}'><body>{_WORDS}. yes or no?</body>"
            f"<thread>{peer.thread}</thread>{self.xml}</message>",
        )

    def decided(self, stanza: Received) -> bool:
        """Return whether a stanza of the target decides it, in any way."""
        head = stanza.head
        if head.sole_child == Decision.xml.tag:
            return self.id in stanza.xml
        mine = head.kind == "message" and bare(head.to or "") == self.peer.address
        return mine and (stanza.body is not None or self.id in stanza.xml)


async def _confirm(t: Talk) -> tuple[_Asking, str, Received | None]:
    """Let a peer ask; return the target's task and its first reaction: a question, or a
    decision.
    """
    peer = Peer(t)
    made = await peer.begin()
    asking = _Asking(t, peer)
    await asking.send()
    about = asks_about(made)
    return asking, made, await t.quiet(lambda s: about(s) or asking.decided(s), t.timeout)


@check("delegation.confirm-up", "DLG-018", "DLG-019", features=[DELEGATION, TASKS, CONFIRM],
       roles=("delegate",), needs=[Ability.PEER], alone=True)  # fmt: skip
async def confirm_up(t: Talk) -> None:
    """The principal is asked for a peer's confirmation, and decides by IQ."""
    asking, made, first = await _confirm(t)
    expected = "a question to the principal, or a decision by policy"
    if not t.hold("DLG-018", first is not None, expected, "nothing came"):
        return
    assert first is not None
    decision: Received | None = first
    if asks_about(made)(first):
        confirm = t.decoded("DLG-018", first, Confirm, "<confirm/>")
        t.hold("DLG-018", confirm.id != asking.id, "an identifier of its own", first)
        to = bare(first.head.to or "")
        t.hold("DLG-018", to == bare(t.who.caller), "to the principal", first)
        early = await t.quiet(asking.decided)
        t.hold("DLG-018", early is None, "no decision before the principal's", early or "")
        told = await t.iq(
            "set", f"<decision xmlns='{CONFIRMATION}' id='{confirm.id}' value='approve'/>"
        )
        t.hold("DLG-018", not told.is_error, "the decision is taken", told)
        decision = await t.quiet(asking.decided, t.timeout)
    else:
        asked = await t.quiet(asks_about(made))
        t.hold("DLG-018", asked is None, "no question about what has been decided", asked or "")
    if not t.hold("DLG-018", decision is not None, "the decision is passed down", "none came"):
        return
    assert decision is not None
    by_iq = decision.head.sole_child == Decision.xml.tag
    t.hold("DLG-019", by_iq, "<decision/> in an IQ", decision)
    given = decision.payload(Decision) if by_iq else None
    if given is not None:
        shown = (decision.tree.findtext(f".//{{{HASHES}}}hash") or "").strip()
        t.hold("DLG-019", shown == asking.hash, f"the digest {asking.hash}", decision)
        ok = (given.id, given.value) == (asking.id, "approve") or decision is first
        t.hold("DLG-018", ok, f"approval of {asking.id}", decision)
    await asking.peer.done()


@check("delegation.confirm-shown", "DLG-020", "DLG-032", "SEC-003",
       features=[DELEGATION, TASKS, CONFIRM], roles=("delegate",), needs=[Ability.PEER],
       alone=True)  # fmt: skip
async def confirm_shown(t: Talk) -> None:
    """The principal sees the acting agent, the skill and all parameters, not a peer's words."""
    asking, made, question = await _confirm(t)
    if question is None or not asks_about(made)(question):
        raise BlockedError("It did not ask its principal: have its policy not decide by itself.")
    said = question.tree.findtext(f"{CLIENT}body") or ""
    for what in (asking.peer.address, "shelves.erase", asking.target):
        t.hold("DLG-020", what in said, f"{what!r} in the body", question)
    t.hold("DLG-020", asking.target in _shown(question), "the parameter as it was", question)
    t.hold("SEC-003", _WORDS not in said, "nothing that the peer has written of it", question)
    confirm = t.given(question, Confirm, "The question")
    ok = confirm.agent is not None and str(confirm.agent) == asking.peer.address
    t.hold("DLG-032", ok, f"the attribute agent with {asking.peer.address}", question)
    digest = "" if confirm.hash is None else base64.b64encode(confirm.hash.digest).decode()
    t.hold("DLG-032", digest == asking.hash, f"the digest {asking.hash}", question)
    action = (confirm.action.type, [(one.name, one.text) for one in confirm.action.params])
    ok = action == ("shelves.erase", [("target", asking.target)])
    t.hold("DLG-032", ok, "the action as it was", question)
    await t.iq("set", f"<decision xmlns='{CONFIRMATION}' id='{confirm.id}' value='deny'/>")
    await asking.peer.done()


def _shown(question: Received) -> str:
    confirm = question.tree.find(f"{{{CONFIRMATION}}}confirm")
    return "" if confirm is None else " ".join(confirm.itertext())


CHECKS = (cancel_down, deadline_down, input_up, confirm_up, confirm_shown, schema_bound)
