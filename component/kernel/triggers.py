"""Work that starts without a request, and the event that triggers it."""

from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec

from component.budget.protocol import Payer
from component.config.work import WorkEntry, read_payer
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from component.skills.context import Context
from component.store.notifications import Priority
from xep.jid import JID

Source: TypeAlias = Literal["schedule", "watch", "webhook", "presence", "plan"]
"""The kind of source of a trigger."""


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that starts work.

    Attributes:
        source: the kind of its source.
        name: the name of the schedule, watch or webhook.
        key: the idempotency key, unique for each (source, name): for example the nominal instant
            in UTC, the node and the id of an item, or the id of a delivery.
        data: the event as JSON. It is shown to a model, or parameters are filled from it.
        taint: who could have written `data`; None if nobody outside this service could.
    """

    source: Source
    name: str
    key: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    taint: Taint | None = None


class _Titled(msgspec.Struct):
    title: str = ""


def title_of(trigger: Trigger) -> str:
    """Return the title of a trigger for people: the member `title` of its data, or its name."""
    try:
        found = msgspec.json.decode(trigger.data, type=_Titled).title
    except (msgspec.ValidationError, msgspec.DecodeError):
        found = ""
    return found or trigger.name


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of a trigger. Either `skill` or `goal` is set.

    Attributes:
        agent: the local part of the agent's address.
        principal: the bare JID whose rights the work has.
        at: the address of the agent at which the principal asked for it; None if nobody did.
        skill: the name of a skill that is run with `params`.
        params: the parameters of the skill, a JSON object.
        filled: whether data of the trigger is in `params`.
        goal: the goal of the agent, in words. It starts a turn of the agent in the principal's
            conversation.
        tell: the bare JIDs that get the result; if empty, the principal gets it.
        silent: nobody gets the result.
        payer: the budget that pays for the turn of a goal; None for those of the principal and the
            agent.
        budget_usd: the maximum cost of the turn, in US dollars; None for no additional maximum.
        priority: how urgent the work and its notification are.
        template: the text of the template of the notification, if there is one
            (`component.config.work`).
        deliver: when people get the result: now, unless quiet hours delay it; when they are
            online; or on time, because the principal has set the time: then quiet hours do not
            delay the result for the principal.
        thread: the thread of the messages about the work; None for none.
        requester: the full JID of the client that gets the events of the task; None if people get
            the result only.
        taints: the sources of the texts that the model had read which asked for this work.
        limits: those of the agent whose model asked for it.
    """

    agent: str
    principal: JID
    at: JID | None = None
    skill: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    filled: bool = False
    goal: str | None = None
    tell: tuple[JID, ...] = ()
    silent: bool = False
    payer: Payer | None = None
    budget_usd: Decimal | None = None
    priority: Priority = "normal"
    template: str = ""
    deliver: Literal["now", "online", "on-time"] = "now"
    thread: str | None = None
    requester: JID | None = None
    taints: tuple[Taint, ...] = ()
    limits: AgentLimits = AgentLimits()


def work_asked_in(context: Context, **what: Any) -> Work:
    """Return work that a model asks for by a skill, with the labels of what the model has read."""
    return Work(
        agent=context.agent.partition("/")[0],  # for a sub-agent, the agent that people know
        principal=JID.parse(context.principal),
        at=JID.parse(context.address).bare if context.address else None,
        taints=context.taints,
        limits=context.limits,
        **what,
    )


def taints_of(trigger: Trigger, work: Work) -> tuple[Taint, ...]:
    """Return the taints of the event, and of what a model had read that asked for the work."""
    found = {*work.taints} if trigger.taint is None else {*work.taints, trigger.taint}
    return tuple(sorted(found))


def work_of(entry: WorkEntry) -> Work:
    """Return the work that an entry of the settings starts."""
    return Work(
        agent=entry.agent,
        principal=JID.parse(entry.principal).bare,
        skill=entry.skill or None,
        params=msgspec.Raw(msgspec.json.encode(entry.params)),
        goal=entry.goal or None,
        tell=tuple(JID.parse(person).bare for person in entry.tell),
        silent=entry.silent,
        payer=Payer(*read_payer(entry.payer)) if entry.payer else None,
        budget_usd=entry.budget,
        priority=entry.priority,
        template=entry.template,
        deliver=entry.deliver,
    )
