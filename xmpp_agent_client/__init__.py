"""Calls agents over XMPP: discovers them, lists and executes their skills, follows tasks, and
answers questions and confirmations.

It needs an XMPP library: `xmpp_agent_client.slixmpp_plugin` is for slixmpp,
`xmpp_agent_client.aioxmpp_service` for aioxmpp. The rest is independent of both.

```python
agents = xmpp.plugin["agents"]
result = await agents.at("agent.example.com").call("echo", {"text": "hello"})
```

The guide is docs/how-to/callers.md.
"""

from xep.fluux_agent.execute import State, Usage
from xep.fluux_agent.skills import Annotations
from xmpp_agent_client.calls import Agent, Agents, Execution
from xmpp_agent_client.errors import (
    AgentError,
    BudgetExhaustedError,
    CallError,
    ConfirmationExpiredError,
    ConfirmationUnavailableError,
    ConflictError,
    DeadlineExpiredError,
    DelegationUnavailableError,
    DeniedError,
    ExpiredError,
    ForbiddenError,
    GrantRequiredError,
    HopsExceededError,
    InputExpiredError,
    InternalError,
    InvalidAnswerError,
    InvalidGrantError,
    InvalidParamError,
    LoopError,
    MalformedError,
    ModeUnavailableError,
    NoAnswerError,
    OutcomeUnknownError,
    OverQuotaError,
    RemoteFailureError,
    RetryError,
    TaskCancelledError,
    TooBigError,
    UnknownConfirmationError,
    UnknownInputError,
    UnknownSkillError,
    UnknownTaskError,
    WorkTimeoutError,
)
from xmpp_agent_client.following import News
from xmpp_agent_client.model import (
    AgentInfo,
    Confirmation,
    File,
    Output,
    Parameter,
    Plan,
    PlanStep,
    Progress,
    Question,
    Result,
    Skill,
    StandingOffer,
    Task,
)
from xmpp_agent_client.stanzas import Options

__all__ = [
    "Agent",
    "AgentError",
    "AgentInfo",
    "Agents",
    "Annotations",
    "BudgetExhaustedError",
    "CallError",
    "Confirmation",
    "ConfirmationExpiredError",
    "ConfirmationUnavailableError",
    "ConflictError",
    "DeadlineExpiredError",
    "DelegationUnavailableError",
    "DeniedError",
    "Execution",
    "ExpiredError",
    "File",
    "ForbiddenError",
    "GrantRequiredError",
    "HopsExceededError",
    "InputExpiredError",
    "InternalError",
    "InvalidAnswerError",
    "InvalidGrantError",
    "InvalidParamError",
    "LoopError",
    "MalformedError",
    "ModeUnavailableError",
    "News",
    "NoAnswerError",
    "Options",
    "OutcomeUnknownError",
    "Output",
    "OverQuotaError",
    "Parameter",
    "Plan",
    "PlanStep",
    "Progress",
    "Question",
    "RemoteFailureError",
    "Result",
    "RetryError",
    "Skill",
    "StandingOffer",
    "State",
    "Task",
    "TaskCancelledError",
    "TooBigError",
    "UnknownConfirmationError",
    "UnknownInputError",
    "UnknownSkillError",
    "UnknownTaskError",
    "Usage",
    "WorkTimeoutError",
]
