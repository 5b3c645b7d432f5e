"""Access control: which senders are admitted, and which skills each of them may use."""

from component.policy.entries import BadEntry, PolicyError
from component.policy.policy import ConfirmationRule, PeerRule, Policy, Rule, ViewKey, When

__all__ = [
    "BadEntry",
    "ConfirmationRule",
    "PeerRule",
    "Policy",
    "PolicyError",
    "Rule",
    "ViewKey",
    "When",
]
