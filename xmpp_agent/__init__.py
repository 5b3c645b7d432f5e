"""What authors of skills import.

```python
from xmpp_agent import skill

@skill(read_only=True, open_world=False)
def shout(text: str) -> str:
    \"\"\"Return the text in capitals.\"\"\"
    return text.upper()
```

Everything else of the distribution may change from one release to the next. `xmpp_agent.testing` is
for the tests of skills. The guide is docs/how-to/write-skills.md.
"""

from component.skills import (
    FREE_TEXT,
    CapabilityMissing,
    Context,
    DeclarationError,
    Denied,
    File,
    InvalidParam,
    Link,
    ModelFailed,
    Output,
    Skill,
    SkillError,
    SkillFailed,
    SkillResult,
    SkillSchedule,
    SkillTimeout,
    SkillUnavailable,
    StepFailed,
    UsageError,
    skill,
)
from component.skills.host import HostError, HttpResponse
from component.skills.operations import ChildFailed, ChildResult

__all__ = [
    "FREE_TEXT",
    "CapabilityMissing",
    "ChildFailed",
    "ChildResult",
    "Context",
    "DeclarationError",
    "Denied",
    "File",
    "HostError",
    "HttpResponse",
    "InvalidParam",
    "Link",
    "ModelFailed",
    "Output",
    "Skill",
    "SkillError",
    "SkillFailed",
    "SkillResult",
    "SkillSchedule",
    "SkillTimeout",
    "SkillUnavailable",
    "StepFailed",
    "UsageError",
    "skill",
]
