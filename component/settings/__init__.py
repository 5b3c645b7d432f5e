"""Configuration: what can be set (`model`), and how it is read (`load`)."""

from component.settings.load import load
from component.settings.model import (
    Agent,
    Conformance,
    Limits,
    Log,
    Policy,
    Rule,
    Server,
    Settings,
    Skills,
    Storage,
)
from component.settings.problems import Problem, SettingsError

__all__ = [
    "Agent",
    "Conformance",
    "Limits",
    "Log",
    "Policy",
    "Problem",
    "Rule",
    "Server",
    "Settings",
    "SettingsError",
    "Skills",
    "Storage",
    "load",
]
