"""What is offered: declaration, schemas, registry and the executors.

An author of skills needs `skill` and, at times, the names beside it. Nothing is offered by being
imported: a registry holds what somebody put there.
"""

from component.skills.context import Context
from component.skills.declare import Annotations, AnySkill, Skill, skill
from component.skills.errors import (
    DeclarationError,
    Denied,
    DuplicateSkillError,
    InvalidParam,
    SearchError,
    SkillError,
    SkillFailed,
    SkillLoadError,
    SkillTimeout,
    StepFailed,
    UsageError,
)
from component.skills.loading import load_module, skills_of
from component.skills.native import call, call_inline
from component.skills.outputs import Output, SkillResult
from component.skills.params import prepare
from component.skills.registry import Registry, View

__all__ = [
    "Annotations",
    "AnySkill",
    "Context",
    "DeclarationError",
    "Denied",
    "DuplicateSkillError",
    "InvalidParam",
    "Output",
    "Registry",
    "SearchError",
    "Skill",
    "SkillError",
    "SkillFailed",
    "SkillLoadError",
    "SkillResult",
    "SkillTimeout",
    "StepFailed",
    "UsageError",
    "View",
    "call",
    "call_inline",
    "load_module",
    "prepare",
    "skill",
    "skills_of",
]
