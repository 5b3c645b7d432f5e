"""Access control: which senders are admitted, and which skills each of them may use."""

from component.policy.entries import BadEntry, PolicyError
from component.policy.policy import Asking, Policy, Rule, View, When

__all__ = ["Asking", "BadEntry", "Policy", "PolicyError", "Rule", "View", "When"]
