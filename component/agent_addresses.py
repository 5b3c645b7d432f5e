"""The addresses of one agent. The default agent of a component has two: the domain itself, and its
name at the domain (``assistant@agent.example.com``). They are one agent to people, with the same
conversation, tasks and questions.
"""

from component import DEFAULT_AGENT
from xep.jid import JID


def both_addresses(address: JID) -> tuple[JID, JID]:
    """Return the bare address, and the other one at which the same agent is reached. An agent with
    one address has it twice, so statements always have two values.
    """
    bare = JID(address.local, address.domain)
    if address.local is None:
        return bare, JID(DEFAULT_AGENT, address.domain)
    if address.local == DEFAULT_AGENT:
        return bare, JID(None, address.domain)
    return bare, bare


def canonical_address(address: JID) -> JID:
    """Return the bare address that stands for the agent: the one with its name."""
    return JID(address.local or DEFAULT_AGENT, address.domain)
