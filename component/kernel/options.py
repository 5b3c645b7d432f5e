"""The options of each package, made from the settings."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from component import DEFAULT_AGENT, VERSION
from component.budget.protocol import BudgetLimits
from component.config import Settings
from component.config.agents import AgentEntry
from component.config.llm import ModelChoice
from component.config.peers import Peer
from component.kernel.disco import Facts
from component.link.router.addresses import AccountAddresses, Addresses, ComponentAddresses
from component.link.router.router import RouterOptions
from component.link.router.work import Shares
from component.memory.knowledge import Knowledge
from component.memory.skills import memory_fixtures, memory_skills
from component.policy import PeerRule, Policy, Rule
from component.policy.entries import read_admins
from component.policy.flows import Flow, Flows
from component.policy.taint import Taint
from component.skills import Registry, Skill
from component.skills.builtin import builtin_skills
from component.skills.loading import add_modules
from component.tasks.delegation import MOST_VIA
from component.tasks.protocol import AGENT_WORK, Bounds, QueueLimits, TaskLimits
from xep.binding.json_bounds import MOST_DEPTH, MOST_VALUES
from xep.jid import JID, learn_spelling
from xep.result_sets import page_room

SOFTWARE = "xmpp-agent-component"
HOME = "https://github.com/xmpp-agent/xmpp-agent-component"
CREATE_SKILL: Final = "create_skill"
"""The skill that proposes others."""
AGENT_CREATE: Final = "agent_create"
"""The skill that proposes agents."""
_RESERVED_PART: Final = 16
"""One in this many of the requests under way is reserved for admins."""
_GRACE_S = 5.0
"""Seconds beyond the limit of skills after which the router cancels a handler."""
_ENVELOPE_BYTES = 16_384
"""Room in a stanza beside the result of a skill: addresses, the attributes of a task, a body."""


def make_registry(
    settings: Settings,
    of_features: Mapping[str, Iterable[Skill]] = {},
    knowledge: Callable[[], Knowledge] | None = None,
) -> Registry:
    """Return every skill that the settings offer, those of features by their names too.
    `knowledge` gives the memories where skills use them.

    Raises:
        SkillLoadError: a module cannot be loaded, or declares no skill.
        DuplicateSkillError: two skills have one name.
    """
    registry = Registry((*builtin_skills(), *memory_skills(knowledge or _no_knowledge)))
    for name, skills in of_features.items():
        for refused in registry.offer(name, tuple(skills)):
            raise refused
    add_modules(registry, settings.skills.modules)
    if settings.conformance.enabled:
        # Imported only where they are offered.
        from component.skills.conformance_fixtures import (  # noqa: PLC0415
            conformance_skills,
            reveal_fixture,
        )

        for skill in (*conformance_skills(), *memory_fixtures(knowledge or _no_knowledge)):
            registry.add(skill)
        registry.add(reveal_fixture(registry))
    return registry


def _no_knowledge() -> Knowledge:
    raise RuntimeError("the memory is not open: no service runs")


def make_policy(settings: Settings) -> Policy:
    """Return the policy that the settings describe.

    Raises:
        PolicyError: an entry of the policy, or of the admins, is invalid.
    """
    admins = read_admins(settings.agent.admins)  # a mistake in it is reported at the start
    return Policy(
        allowed_domains=settings.allowed_domains,
        allowed_jids=settings.agent.allowed_jids,
        rules=[
            *(
                Rule(
                    rule.skills,
                    rule.allowed_jids,
                    rule.allowed_domains,
                    rule.confirm,
                    rule.approvers,
                    *(rule.least_affiliation, rule.hat, rule.need, rule.not_requester),
                )
                for rule in settings.policy.rules
            ),
            *_may_propose(settings, admins),
        ],
        confirm=settings.policy.confirm,
        peers=[
            PeerRule(
                *(peer.name, peer.jid, peer.offers, peer.believed_domains, peer.delegates),
                concurrency=peer.concurrency,
                open_tasks=peer.open_tasks,
                requires_grant=peer.requires == "grant",
                confirm=peer.confirm,
            )
            for peer in settings.peer
        ],
    )


def make_flows(settings: Settings) -> Flows:
    """Return what the data of strangers may reach."""
    return Flows(
        [
            *(Flow(rule.of, rule.to, rule.then) for rule in settings.policy.flows),
            *(flow for peer in settings.peer for flow in _flows_to(peer)),
        ]
    )


def _flows_to(peer: Peer) -> Sequence[Flow]:
    """Return what the settings of a peer say about the data that may reach it."""
    if peer.data is None:
        return ()
    to = (f"peer:{peer.name}",)
    sources: tuple[Taint, ...] = ("peer", "web", "file", "room")
    others = tuple([each for each in sources if each not in peer.data])
    return (Flow(others, to, "refuse"), Flow(peer.data, to, "allow"))


def _may_propose(settings: Settings, admins: Collection[JID]) -> Sequence[Rule]:
    """Return the rule about who may propose skills and agents. Rules of the settings can only
    restrict it.
    """
    proposals = settings.skills.proposals
    if proposals is None:
        return ()
    everybody = "*" in proposals.principals
    allowed = ("*",) if everybody else (*map(str, admins), *proposals.principals)
    return (Rule((CREATE_SKILL, AGENT_CREATE), allowed),)


def agent_entries(settings: Settings) -> Sequence[AgentEntry]:
    """Return the hosted agents; the first one answers for the domain."""
    declared = {entry.name: entry for entry in settings.agents}
    default = declared.pop(DEFAULT_AGENT, None) or AgentEntry(name=DEFAULT_AGENT)
    return (default, *declared.values())


def agent_titles(settings: Settings) -> Mapping[str, str]:
    """Return the names of the hosted agents that people see, by the names of the agents."""
    return {
        entry.name: entry.title
        or (settings.agent.name if entry.name == DEFAULT_AGENT else entry.name)
        for entry in agent_entries(settings)
    }


def privileged_domains(settings: Settings) -> frozenset[str]:
    """The domains whose servers may grant privileges to us (XEP-0356)."""
    named = settings.memory.privileged_domains
    if named is not None:
        return frozenset(JID.parse(domain).domain for domain in named)
    above = settings.server.parent_domain
    return frozenset((JID.parse(above).domain,)) if above else frozenset()


def addresses(settings: Settings) -> Addresses:
    """Return the addresses at which the agents are reached."""
    learn_spelling(settings.server.address)
    address = JID.parse(settings.server.address)
    if settings.server.mode == "client":
        return AccountAddresses(address, DEFAULT_AGENT)
    return ComponentAddresses(address, frozenset(agent_titles(settings)), DEFAULT_AGENT)


def names_by_localpart(settings: Settings) -> Mapping[str, str]:
    """Return the names of the hosted agents that people see, by the localparts of their
    addresses.
    """
    if settings.server.mode == "client":
        return {settings.server.address.partition("@")[0]: agent_titles(settings)[DEFAULT_AGENT]}
    return agent_titles(settings)


def own_models(settings: Settings) -> Mapping[str, ModelChoice]:
    """Return the models of agents that have one of their own, by the name of the agent."""
    return {entry.name: entry.llm for entry in settings.agents if entry.llm is not None}


def all_models(settings: Settings) -> Mapping[str, ModelChoice]:
    """Return all models, also those that agents have of their own, by their sections, with
    inherited values. The main one is the first.
    """
    if settings.llm is None:
        return {}
    from component.models.building import choices  # noqa: PLC0415 - only where there is a model

    return choices(settings.llm, own_models(settings))


def model_names(settings: Settings) -> Sequence[str]:
    """Return the provider and the name of each model."""
    found = all_models(settings).values()
    return list(dict.fromkeys(f"{one.provider} {one.model or 'bundled'}" for one in found))


def page_bytes(settings: Settings) -> int:
    """The bytes that the entries of a page may take, so that the page can be sent."""
    return page_room(settings.server.max_stanza_bytes)


def operator(settings: Settings) -> str:
    """Return the person or organisation responsible for the agents, as text for people."""
    domain = settings.server.component_domain
    return settings.agent.operator or f"the administrators of {domain}"


def facts(settings: Settings) -> Facts:
    """Return the facts about the service that discovery shows."""
    limits, tasks = settings.limits, settings.tasks
    return Facts(
        domain=JID.parse(settings.server.address),
        contact=settings.agent.contact,
        name=settings.agent.name,
        node=HOME,
        form={
            "operator": operator(settings),
            "software": SOFTWARE,
            "software_version": VERSION,
            "protocol_version": "0",
            "max_stanza_bytes": str(settings.server.max_stanza_bytes),
            "max_json_values": str(MOST_VALUES),
            "max_json_depth": str(MOST_DEPTH),
            "inline_seconds": f"{limits.inline_s:g}",
            "requests_per_principal": str(limits.requests_per_principal),
            "replay_seconds": f"{tasks.replay_s:g}",
            "retention_seconds": f"{tasks.retention_s:g}",
            "tasks_per_principal": str(tasks.per_principal),
            "open_bytes_per_principal": str(tasks.open_bytes_per_principal),
            "records_per_principal": str(tasks.records_per_principal),
            "ended_tasks_per_principal": str(tasks.ended_per_principal),
            "ended_bytes_per_principal": str(tasks.ended_bytes_per_principal),
            **({"max_hops": str(MOST_VIA)} if settings.peer else {}),
        },
    )


def router_options(
    settings: Settings, admins: Collection[JID] = (), tag: str = ""
) -> RouterOptions:
    """Return the options of the router. `admins` are bare addresses; `tag` identifies this
    instance.
    """
    limits = settings.limits
    reserved = limits.requests_total // _RESERVED_PART if admins else 0
    return RouterOptions(
        shares=Shares(limits.requests_per_principal, limits.requests_total, reserved),
        admins=frozenset(map(str, admins)),
        request_timeout_s=limits.inline_s + limits.iq_timeout_s + _GRACE_S,
        retry_after_s=limits.retry_after_s,
        call_timeout_s=limits.iq_timeout_s,
        max_stanza_bytes=settings.server.max_stanza_bytes,
        tag=tag,
    )


def task_limits(settings: Settings) -> TaskLimits:
    """Return the limits of tasks."""
    limits, tasks = settings.limits, settings.tasks
    stanza = settings.server.max_stanza_bytes
    return TaskLimits(
        inline_s=limits.inline_s,
        replay_s=tasks.replay_s,
        retention_s=tasks.retention_s,
        page_room=page_bytes(settings),
        tasks_per_principal=tasks.per_principal,
        running_total=tasks.running_total,
        running_per_principal=tasks.running_per_principal,
        ask_expires_s=tasks.ask_s,
        poll_after_s=tasks.poll_after_s,
        retry_after_s=limits.retry_after_s,
        drain_s=settings.server.drain_s,
        max_attempts=tasks.max_attempts,
        queues=_queues(settings),
        result_bytes=max(stanza - _ENVELOPE_BYTES, stanza // 2),
        open_bytes=tasks.open_bytes_per_principal,
        records_per_principal=tasks.records_per_principal,
        held_per_person=settings.notifications.held_per_person,
        kept=Bounds(tasks.ended_per_principal, tasks.ended_bytes_per_principal),
    )


def _queues(settings: Settings) -> Mapping[str, QueueLimits]:
    queues = {
        name: QueueLimits(queue.running, queue.per_minute)
        for name, queue in settings.tasks.queues.items()
    }
    if settings.llm is not None:
        queues[AGENT_WORK] = QueueLimits(settings.loop.children)
    return queues


def budget_limits(settings: Settings) -> BudgetLimits:
    """Return every budget in the settings."""
    budgets = settings.budgets
    return BudgetLimits(
        agents={entry.name: entry.budget for entry in agent_entries(settings)},
        principal=budgets.per_principal,
        task=budgets.per_task,
        day=budgets.total,
        alert=budgets.alert,
    )


def limited_in_usd(settings: Settings) -> bool:
    """Return whether any budget is in US dollars, so that prices matter."""
    limits = budget_limits(settings)
    all_ = (*limits.agents.values(), limits.principal, limits.task, limits.day)
    values = [getattr(settings, name) for name in type(settings).model_fields]
    sections = chain.from_iterable([one if isinstance(one, tuple) else (one,) for one in values])
    own = [getattr(section, "budget_usd", None) for section in sections]  # of rooms and schedules
    return any(limit.usd is not None for limit in all_) or any(one is not None for one in own)
