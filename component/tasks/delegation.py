"""Judges the delegation of a request: its form, its path and its limits (RPL-001, row 5).

The rules compare three identities. The *sender*, which the servers stamp, is authorised, and its
decisions count. The *origin* is the person for whom the work is done, as the sender says: it can
only restrict what the sender may do. The *path* says which agents the work has passed; nobody but
the sender answers for it.
"""

import re
from typing import Final

from component.agent_addresses import both_addresses
from component.budget.protocol import TurnBudget
from component.policy import Policy
from component.skills import Skill
from component.tasks.request import Request
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation

MOST_VIA: Final = 16
"""The maximum number of agents in a path."""
_TRACE: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
"""A traceparent of W3C Trace Context (Level 1, §3.2)."""


def check(request: Request, skill: Skill, policy: Policy) -> None:
    """Check the delegation of a request, which has one.

    Raises StanzaError: `malformed`, `loop`, `hops-exceeded`; `unknown-skill` if the work may not be
    done for this origin (DLG-010, DLG-011); `budget-exhausted` if it is known to cost more than it
    may.
    """
    delegation = request.delegation
    assert delegation is not None, "the request has one"
    wrong = _malformed(delegation)
    if wrong is None and delegation.via[-1] != request.principal:
        wrong = f"the last <via/> must be the sender, {request.principal}"
    if wrong is not None:
        raise errors.malformed(f"delegation: {wrong}")
    if not set(both_addresses(request.target)).isdisjoint(delegation.via):
        raise errors.loop()
    if len(delegation.via) > delegation.max_hops:
        raise errors.hops_exceeded()
    if not policy.believes(request.principal, delegation.origin):
        raise errors.unknown_skill()
    if not policy.may_profit(delegation.origin, skill.name):
        raise errors.unknown_skill()
    cost, most = skill.cost_usd, delegation.budget_usd
    if cost is not None and most is not None and cost > float(most):
        raise errors.budget_exhausted()


def budget_of(request: Request, task: str) -> TurnBudget | None:
    """Return what pays for the work of a task and of all that it starts: the budget of the one
    that started it, or that of a delegation; None if the task has one of its own.
    """
    context, delegation = request.caller_context, request.delegation
    if context.budget is not None or delegation is None:
        return context.budget
    usd = delegation.budget_usd
    return TurnBudget(
        task,
        limit_usd=None if usd is None else float(usd),
        limit_tokens=delegation.budget_tokens,
    )


def _malformed(delegation: Delegation) -> str | None:
    """Return what is wrong with the form of a delegation; None if nothing is."""
    if delegation.origin.resource is not None:
        return "origin must be a bare JID"
    if any(via.resource is not None for via in delegation.via):
        return "each <via/> must be a bare JID"
    if len(delegation.via) > MOST_VIA:
        return f"at most {MOST_VIA} <via/> are accepted"
    if delegation.max_hops < 0:
        return "max-hops must not be negative"
    if delegation.budget_usd is not None and delegation.budget_usd < 0:
        return "budget-usd must not be negative"
    if delegation.budget_tokens is not None and delegation.budget_tokens < 0:
        return "budget-tokens must not be negative"
    if delegation.trace is not None and _TRACE.fullmatch(delegation.trace) is None:
        return "trace must be a traceparent of W3C Trace Context"
    return None
