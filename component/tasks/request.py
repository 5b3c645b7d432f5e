"""A request to run a skill: one struct from the wire to its row, and how to recognise repetitions.

An execute element, a form, a model's call, a trigger and the start of a child task become a
`Request` at once. `component.tasks.admission` checks it, and the row of a task stores it.

A caller can name its request with the attribute `request` (specification, "The Same Request
Again"). Then the name is the key, and the same name with other content is a conflict. Without a
name there is only the id of the IQ, which many clients count from 1 after each login. Such a key
therefore includes the content, and is valid for a minute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from component.agent_addresses import canonical_address
from component.budget.protocol import TurnBudget
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from component.store.database import Database
from xep.fluux_agent.confirm import Approvals
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Execute, Param
from xep.jid import JID

Mode: TypeAlias = Literal["auto", "inline", "async"]
Priority: TypeAlias = Literal["low", "normal", "high"]

Origin = Literal["iq", "message", "command", "tool", "child", "trigger"]
"""The source of a request: an execute IQ, a chat message, an ad-hoc command, a model's tool call,
the run of another task, or a trigger such as a schedule.
"""

Asker = Literal["caller", "model", "misled model", "approved"]
"""Who wants to run a skill: the caller of an execute request, a model on behalf of its principal,
or a model that has read text of strangers, which may have misled it. `approved`: a model, and its
principal has already confirmed exactly this call, together with others.
"""

OnResult: TypeAlias = Callable[[tuple[Taint, ...]], None]
"""Receives the possible authors of a result, if the result names them."""
OnAccepted: TypeAlias = Callable[[Database, str], object]
"""Changes the database in the transaction that accepts a request as a task, whose id it receives.
It may be called more than once.
"""


def no_change(_database: Database, _task: str) -> None:
    """Change nothing else when a request is accepted."""


class CallerContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which agent runs a skill, and for whom: the caller of a request, or a model of that agent.

    The model has read texts of the sources in `taints`. `timeout_s` limits the run, in seconds, if
    it is less than the time-out of the skill. `trace` links the audit events of one turn.
    `operator` is the operator who started the turn, if it was not started by the principal.
    `budget` pays for what the skill asks of a model; None: the task has a budget of its own.
    `chosen` names the parameters that the authors of these texts may have chosen, and `reserved`
    those with a value that must be the principal's own and is not. `limits` are those of the agent,
    for calls of its model. `unrequested` says that the principal has not asked for it: a schedule,
    an event or an operator has started it. `room` is the room in which it was asked for, or the
    occupant who has asked in private: the memory of that is used, and not the principal's.
    `occupant` is the bare JID of the occupant who has asked for it, where presence shows it.
    `own_schedule` says that a schedule has started it which the principal has made, with the
    parameters that are set there.
    """

    agent: str
    asker: Asker = "caller"
    taints: tuple[Taint, ...] = ()
    timeout_s: float | None = None
    trace: str = ""
    operator: str = ""
    budget: TurnBudget | None = None
    chosen: tuple[str, ...] = ()
    limits: AgentLimits = AgentLimits()
    unrequested: bool = False
    reserved: tuple[str, ...] = ()
    room: JID | None = None
    occupant: str = ""
    own_schedule: bool = False


THE_CALLER: Final = CallerContext("")
"""The context of a request of a caller for itself, to the agent at the address that it used."""


class Confirmation(msgspec.Struct, frozen=True):
    """A confirmation that is needed before the work begins.

    Any one of the bare JIDs `asked` can answer, unless `approvals` says that several have to, or
    who else can; it expires `expires_s` seconds after admission.
    """

    asked: tuple[JID, ...]
    risk: Literal["low", "medium", "high"] = "medium"
    expires_s: float = 86400.0
    approvals: Approvals | None = None

    def is_only_of(self, person: JID) -> bool:
        """Whether this bare JID decides, and nobody else."""
        return self.asked == (person,) and self.approvals is None


NO_JSON: Final = msgspec.Raw()
"""No parameters as JSON."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to run a skill. Its JSON is stored in the row of the task that it becomes.

    `principal` is the bare JID of `requester`, which is full; `target` is our bare address that
    received it. `params` are the parameters given as text, in order, and `json` is a JSON
    object of others; the request of a task has all of them in `json`, as the skill takes them.
    `mode` is `inline` for a result in the answer, `async` for a task, `auto` for either. `name` is
    the caller's own id (the attribute `request`), which identifies repetitions; without one the id
    of the IQ, `stanza_id`, does for a while. `session` names a request that has no IQ of its own:
    the session of a command (FAC-006), or a turn and the number of a model's call in it. The result
    is useless after `deadline`. `priority` orders the caller's waiting tasks. `context` groups
    tasks, `earlier` are the ids of some of them, `thread` is the thread of messages about the work.
    `delegation` is present when an agent asks on behalf of somebody else. `version` is that of the
    skill that the caller has read, if it must be this one. `lang` is the language of
    the request. `confirmation` is one that is needed before it begins; `undecided` says that it is
    determined only after the request is accepted whether one is. `poll_after` is the number of
    seconds that `<accepted/>` suggested to wait before polling. What a child task reports is
    reported by its parent, if `shown_as` is given: it begins the names of artifacts there. `parent`
    is the task of the sub-agent whose model calls: the task of this request ends with that one.
    With `group`, the limits of the skill's queue apply to the tasks with the same group. `about`
    says in a list of tasks what this one does, until it reports progress.
    """

    skill: str
    principal: JID
    requester: JID
    target: JID
    params: tuple[Param, ...] = ()
    json: msgspec.Raw = NO_JSON
    mode: Mode = "auto"
    name: str | None = None
    stanza_id: str = ""
    lang: str | None = None
    deadline: datetime | None = None
    priority: Priority = "normal"
    context: str | None = None
    thread: str | None = None
    earlier: tuple[str, ...] = ()
    delegation: Delegation | None = None
    version: str | None = None
    session: str | None = None
    origin: Origin = "iq"
    caller_context: CallerContext = THE_CALLER
    confirmation: Confirmation | None = None
    undecided: bool = False
    poll_after: int | None = None
    shown_as: str = ""
    parent: str = ""
    group: str = ""
    about: str = ""

    @property
    def size(self) -> int:
        """The approximate size of the parameters in bytes."""
        size = len(self.json)
        for param in self.params:
            size += len(param.name) + len(param.text)
        return size

    @property
    def share(self) -> str:
        """Whose share of the service it uses: its principal's. Work that a principal delegates has
        a share for each origin, so that one person behind an agent does not shut out the others.
        """
        delegation = self.delegation
        return (
            str(self.principal) if delegation is None else f"{self.principal} {delegation.origin}"
        )

    @property
    def requesters(self) -> frozenset[JID]:
        """The bare JIDs of those who want it done: its principal, the origin and the agents of a
        delegation, the operator or the occupant of a room who has asked for it.
        """
        context, delegation = self.caller_context, self.delegation
        found = {self.principal.bare}
        if delegation is not None:
            found |= {delegation.origin.bare, *(via.bare for via in delegation.via)}
        for one in (context.operator, context.occupant):
            if "@" in one:
                found.add(JID.parse(one).bare)
        return frozenset(found)

    @property
    def has_terms(self) -> bool:
        """Whether it says more than what to run: how, until when, after what, or for whom."""
        return (
            self.mode == "inline"
            or self.deadline is not None
            or bool(self.earlier)
            or self.delegation is not None
            or self.version is not None
        )

    @property
    def conversational(self) -> bool:
        """Whether a person follows it in a conversation (specification, "Events")."""
        return bool(self.thread) or self.origin != "iq"

    @property
    def is_for_person(self) -> bool:
        """Whether a person gets the files of its result in a conversation. Agents and parent tasks
        have them in the result.
        """
        return self.conversational and self.origin != "child" and self.delegation is None

    def texts(self) -> dict[str, list[str]]:
        """Return the texts given for each parameter name, in order."""
        texts: dict[str, list[str]] = {}
        for param in self.params:
            texts.setdefault(param.name, []).append(param.text)
        return texts

    def stored(self, arguments: object, poll_after: int) -> Request:
        """Return the request as a row stores it: all parameters are in `json`."""
        json = msgspec.Raw(msgspec.json.encode(arguments))
        return msgspec.structs.replace(
            self, params=(), json=json, stanza_id="", session=None, poll_after=poll_after
        )


def request_from(
    execute: Execute,
    *,
    requester: JID,
    principal: JID,
    target: JID,
    stanza_id: str = "",
    lang: str | None = None,
) -> Request:
    """Return the request that an execute element in an IQ makes."""
    given = execute.json_params
    # In the order of the fields: a Struct takes five times as long for so many by name.
    return Request(
        execute.skill,
        principal,
        requester,
        target,
        execute.params,
        NO_JSON if given is None else given.json,
        execute.mode,
        execute.request,
        stanza_id,
        lang,
        execute.deadline,
        execute.priority,
        execute.context,
        execute.thread,
        tuple([earlier.task for earlier in execute.earlier]) if execute.earlier else (),
        execute.delegation,
        execute.version,
    )


SMALL: Final = 8192
"""Data of at most this size, in bytes, is processed without waiting for a turn."""

# Repetitions.

UNNAMED_WINDOW_S: Final = 60.0
"""Seconds for which a repetition of a request without a name is recognised (RPL-006)."""
_LARGEST_EXACT: Final = 2**53
_SESSION: Final = "session "
"""An identifier of a caller never contains a space, so it cannot equal one of a session."""


class RequestKey(msgspec.Struct, frozen=True):
    """The key of a request.

    `text` identifies repetitions, as 64 hex digits. `digest` is a digest of the content, likewise;
    without a name the content is part of the key, and there is nothing to compare. `named` says
    whether the caller named the request.
    """

    text: str
    digest: str
    named: bool = True


NO_KEY: Final = RequestKey("", "")
"""The key of work that cannot be repeated by a request, such as a child task."""


def key_of(request: Request) -> RequestKey:
    """Return the key that identifies repetitions of a request, on disk too (RPL-005, RPL-006).

    It hashes the whole content. The resource of the requester is ignored for a named request.
    """
    if request.session is not None:
        name = session_key(request.requester, request.target, request.session)
    elif request.name is not None:
        name = named_key(request.requester, request.target, request.name)
    else:
        parts = ("iq", str(request.requester), str(request.target), request.stanza_id)
        digest = hashlib.sha256(_encode(parts))
        digest.update(_content(request))
        text = digest.hexdigest()
        return RequestKey(text, text, named=False)
    return RequestKey(name, digest_of(request))


def session_key(requester: JID, target: JID, session: str) -> str:
    """Return the text of the key of a request in a session, which is one at both addresses of an
    agent.
    """
    return named_key(requester, canonical_address(target), _SESSION + session)


def named_key(requester: JID, target: JID, name: str) -> str:
    """Return the text of the key of a request with a name (RPL-005)."""
    parts = ("request", str(requester.bare), str(target), name)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def digest_of(request: Request) -> str:
    """Return a digest of the content of a request, as 64 hex digits: equal for equal content only.

    The specification ("The Same Request Again") says what counts: not the order of parameters with
    different names, white space, or the formatting of JSON.
    """
    return hashlib.sha256(_content(request)).hexdigest()


def _content(request: Request) -> bytes:
    delegation = request.delegation
    parts = (
        request.skill,
        request.mode,
        request.priority,
        request.context,
        request.thread,
        request.earlier,
        None if request.deadline is None else repr(request.deadline.timestamp()),
        request.texts(),
        delegation
        and (
            str(delegation.origin),
            delegation.max_hops,
            None if delegation.budget_usd is None else str(delegation.budget_usd.normalize()),
            delegation.budget_tokens,
            delegation.trace,
            [str(via) for via in delegation.via],
            [grant.jws for grant in delegation.grants],
        ),
    )
    # Most requests name no version, and have the digests that they had before there was one.
    content = _encode(parts if request.version is None else (*parts, request.version))
    if request.json:
        content += _canonical(bytes(request.json))
    return content


def _canonical(json: bytes) -> bytes:
    """Return the same bytes for all encodings of a JSON value, except for numbers that are not
    exact.

    Members are sorted, and a float that is an integer is written as one. RFC 8785 would give the
    same result in a hundred times the time, and only this process reads these digests.
    """
    try:
        return b"json " + _encode(_decode(json))
    except (ValueError, RecursionError):
        return b"text " + json  # refused later; until then it equals only itself


def _float(text: str) -> float:
    """Parse a number: 1.0 and 1e0 are the number 1 (specification, "The Same Request Again")."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < _LARGEST_EXACT else value


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(float_hook=_float).decode
