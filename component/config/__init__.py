"""The configuration: the sections (`model`, and a module for each section), and reading them
(`load`).
"""

from component.config.limits import RequestLimits
from component.config.load import load
from component.config.model import Settings
from component.config.policy import Agent, Policy, Rule
from component.config.problems import Problem, SettingsError
from component.config.server import Server
from component.config.service import Log, Storage
from component.config.skills import Conformance, Skills

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
