"""Skills: declaration, schemas, registry and execution.

An author of skills needs `skill` and sometimes the names beside it. Importing a skill does not
offer it: a registry contains the skills that were added to it.
"""

from component.skills.calling import call, call_inline
from component.skills.context import Context
from component.skills.declare import skill
from component.skills.errors import (
    CapabilityMissing,
    DeclarationError,
    Denied,
    DuplicateSkillError,
    InvalidParam,
    SearchError,
    SkillError,
    SkillFailed,
    SkillLoadError,
    SkillTimeout,
    SkillUnavailable,
    StepFailed,
    UsageError,
)
from component.skills.free_texts import FREE_TEXT
from component.skills.loading import load_module, skills_of
from component.skills.operations import ChildFailed, ModelFailed
from component.skills.outputs import File, Link, Output, SkillResult
from component.skills.params import prepare
from component.skills.registry import Registry, View
from component.skills.skill import Skill
from component.skills.spec import Annotations, SkillSchedule, SkillSpec

__all__ = [
    "FREE_TEXT",
    "Annotations",
    "CapabilityMissing",
    "ChildFailed",
    "Context",
    "DeclarationError",
    "Denied",
    "DuplicateSkillError",
    "File",
    "InvalidParam",
    "Link",
    "ModelFailed",
    "Output",
    "Registry",
    "SearchError",
    "Skill",
    "SkillError",
    "SkillFailed",
    "SkillLoadError",
    "SkillResult",
    "SkillSchedule",
    "SkillSpec",
    "SkillTimeout",
    "SkillUnavailable",
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
