"""Executes skills for every caller: an IQ, a command or a model."""

from component.execution.admission import Admission, Confirming
from component.execution.executor import SkillExecutor
from component.execution.request import SkillRequest

__all__ = ["Admission", "Confirming", "SkillExecutor", "SkillRequest"]
