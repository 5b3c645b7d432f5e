"""Configuration: what can be set (`model`, a room for each section), and reading it (`load`)."""

from component.settings.limits import Limits
from component.settings.load import load
from component.settings.log import Log
from component.settings.model import Settings
from component.settings.policy import Agent, Policy, Rule
from component.settings.problems import Problem, SettingsError
from component.settings.server import Server
from component.settings.skills import Conformance, Skills
from component.settings.storage import Storage

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
