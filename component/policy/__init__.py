"""Who may do what: which senders are admitted, and which skills each of them may use."""

from component.policy.entries import BadEntry, PolicyError
from component.policy.policy import Policy, Rule, View

__all__ = ["BadEntry", "Policy", "PolicyError", "Rule", "View"]
