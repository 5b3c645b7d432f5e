"""The configuration: the sections (`model`, and a module for each section), and reading them
(`load`).
"""

from component.settings.limits import RequestLimits
from component.settings.load import load
from component.settings.model import Settings
from component.settings.policy import Agent, Policy, Rule
from component.settings.problems import Problem, SettingsError
from component.settings.server import Server
from component.settings.service import Log, Storage
from component.settings.skills import Conformance, Skills

__all__ = [
    "Agent",
    "Conformance",
    "Log",
    "Policy",
    "Problem",
    "RequestLimits",
    "Rule",
    "Server",
    "Settings",
    "SettingsError",
    "Skills",
    "Storage",
    "load",
]
