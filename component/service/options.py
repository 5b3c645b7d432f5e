"""What each room is told by the settings."""

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from component.budget import book as spending
from component.connection.options import TLS, ConnectionOptions
from component.handlers.disco import Facts
from component.memory.knowledge import Knowledge
from component.memory.skills import memory_skills
from component.policy import Policy, Rule
from component.policy.admins import read_admins
from component.router.admission import Shares
from component.router.router import RouterOptions
from component.settings import Settings
from component.settings.agents import AgentEntry, Budget
from component.settings.llm import ModelChoice
from component.skills import Registry, load_module, skills_of
from component.skills.builtin import builtin_skills
from component.tasks.admit import Limits
from component.tasks.kept import Bounds
from xep.binding.json_bounds import MOST_DEPTH, MOST_VALUES
from xep.jid import JID

SOFTWARE = "xmpp-agent-component"
HOME = "https://github.com/xmpp-agent/xmpp-agent-component"
DEFAULT_AGENT = "assistant"
"""The localpart of the agent that every component hosts."""
_RESERVED_PART: Final = 16
"""The part of all requests that only admins can have under way is one in so many."""
_GRACE_S = 5.0
"""Seconds beyond the skills' own limit after which the router gives a handler up."""
_ENVELOPE_BYTES = 16_384
"""What a stanza takes beside the result of a skill: addresses, a task's attributes, a body."""


def load_skills(settings: Settings, knowledge: Callable[[], Knowledge] | None = None) -> Registry:
    """Every skill that the settings offer. `knowledge` gives the memories, where any are called.

    Raises:
        SkillLoadError: a module cannot be loaded, or declares no skill.
        DuplicateSkillError: two skills have one name.
    """
    registry = Registry((*builtin_skills(), *memory_skills(knowledge or _no_knowledge)))
    for module in settings.skills.modules:
        for skill in skills_of(load_module(module)):
            registry.add(skill)
    if settings.conformance.enabled:
        # Nobody pays for the fixtures who does not offer them.
        from component.skills.conformance_fixtures import conformance_skills  # noqa: PLC0415

        for skill in conformance_skills():
            registry.add(skill)
    return registry


def _no_knowledge() -> Knowledge:
    raise RuntimeError("the memory is not open: no service runs")


def make_policy(settings: Settings) -> Policy:
    """The policy that the settings describe.

    Raises:
        PolicyError: an entry that cannot be kept to, of these or of the admins.
    """
    read_admins(settings.agent.admins)  # who starts with a mistake in it is told at once
    return Policy(
        allowed_domains=settings.allowed_domains,
        allowed_jids=settings.agent.allowed_jids,
        rules=[
            Rule(
                rule.skills,
                rule.allowed_jids,
                rule.allowed_domains,
                rule.confirm,
                rule.approvers,
            )
            for rule in settings.policy.rules
        ],
        confirm=settings.policy.confirm,
    )


def connection_options(settings: Settings) -> ConnectionOptions:
    """What the connection is told by the settings."""
    server = settings.server
    tls = None
    if server.tls:
        tls = TLS(
            ca_file=None if server.tls_ca is None else str(server.tls_ca),
            server_name=server.tls_server_name,
            verify=server.tls_verify,
        )
    return ConnectionOptions(
        host=server.host,
        port=server.port,
        domain=server.component_domain,
        secret=server.component_secret.get_secret_value(),
        tls=tls,
        connect_timeout_s=server.connect_timeout_s,
        handshake_timeout_s=server.connect_timeout_s,
        reconnect_min_s=server.reconnect_min_s,
        reconnect_max_s=server.reconnect_max_s,
        keepalive_s=server.keepalive_s,
        read_timeout_s=server.read_timeout_s,
        probe_timeout_s=server.probe_timeout_s,
        max_stanza_bytes=server.max_stanza_bytes,
        max_depth=server.max_depth,
        max_elements=server.max_elements,
    )


def agent_entries(settings: Settings) -> Sequence[AgentEntry]:
    """The agents that are hosted, the one that answers for the domain first."""
    declared = {entry.name: entry for entry in settings.agents}
    default = declared.pop(DEFAULT_AGENT, None) or AgentEntry(name=DEFAULT_AGENT)
    return (default, *declared.values())


def agents(settings: Settings) -> Mapping[str, str]:
    """The agents that are hosted, by localpart, with the names shown to people."""
    return {
        entry.name: entry.title
        or (settings.agent.name if entry.name == DEFAULT_AGENT else entry.name)
        for entry in agent_entries(settings)
    }


def own_models(settings: Settings) -> Mapping[str, ModelChoice]:
    """The models of agents that have one of their own, by localpart."""
    return {entry.name: entry.llm for entry in settings.agents if entry.llm is not None}


def facts(settings: Settings) -> Facts:
    """What discovery says of the service."""
    limits, tasks = settings.limits, settings.tasks
    return Facts(
        domain=JID.parse(settings.server.component_domain),
        name=settings.agent.name,
        node=HOME,
        form={
            "software": SOFTWARE,
            "software_version": version(SOFTWARE),
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
            "ended_tasks_per_principal": str(tasks.ended_per_principal),
            "ended_bytes_per_principal": str(tasks.ended_bytes_per_principal),
        },
    )


def router_options(settings: Settings, admins: Collection[JID] = ()) -> RouterOptions:
    """What the router is told. `admins` are bare addresses."""
    limits = settings.limits
    reserved = limits.requests_total // _RESERVED_PART if admins else 0
    return RouterOptions(
        domain=settings.server.component_domain,
        agents=frozenset(agents(settings)),
        shares=Shares(limits.requests_per_principal, limits.requests_total, reserved),
        admins=frozenset(map(str, admins)),
        request_timeout_s=limits.inline_s + limits.iq_timeout_s + _GRACE_S,
        retry_after_s=limits.retry_after_s,
        call_timeout_s=limits.iq_timeout_s,
        max_stanza_bytes=settings.server.max_stanza_bytes,
    )


def task_limits(settings: Settings) -> Limits:
    """What bounds the durable work."""
    limits, tasks = settings.limits, settings.tasks
    stanza = settings.server.max_stanza_bytes
    return Limits(
        inline_s=limits.inline_s,
        replay_s=tasks.replay_s,
        retention_s=tasks.retention_s,
        tasks_per_principal=tasks.per_principal,
        running_total=tasks.running_total,
        running_per_principal=tasks.running_per_principal,
        ask_expires_s=tasks.ask_s,
        poll_after_s=tasks.poll_after_s,
        retry_after_s=limits.retry_after_s,
        drain_s=settings.server.drain_s,
        result_bytes=max(stanza - _ENVELOPE_BYTES, stanza // 2),
        open_bytes=tasks.open_bytes_per_principal,
        kept=Bounds(tasks.ended_per_principal, tasks.ended_bytes_per_principal),
    )


def budget_limits(settings: Settings) -> spending.Limits:
    """Every budget that is set."""
    budgets = settings.budgets
    return spending.Limits(
        agents={entry.name: _limit(entry.budget) for entry in agent_entries(settings)},
        principal=_limit(budgets.per_principal),
        task=_limit(budgets.per_task),
        day=_limit(budgets.total),
        alert=budgets.alert,
    )


def limited_in_usd(settings: Settings) -> bool:
    """Whether any budget is in US dollars, so that prices matter."""
    limits = budget_limits(settings)
    all_ = (*limits.agents.values(), limits.principal, limits.task, limits.day)
    return any(limit.usd is not None for limit in all_)


def _limit(budget: Budget) -> spending.Limit:
    return spending.Limit(budget.tokens, budget.usd)
