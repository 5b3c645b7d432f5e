"""Templates of notifications: texts with placeholders, in the syntax of `string.Template`.

A template can only insert values: there are no expressions, attributes or formats. So its author
cannot read anything but these values.
"""

from string import Template
from typing import Annotated, Final

from pydantic import AfterValidator

from component.settings.kinds import refusal

PLACEHOLDERS: Final = ("agent", "first_line", "name", "source", "text")
"""The values that a template can insert: the agent's name, the first line of the result, the name
of the schedule, watch or webhook, the kind of source that started the work, and the result.
"""

_LONGEST: Final = 2_000


def template_fault(text: str) -> str | None:
    """Return why a text is not a template, as a clause; None if it is one."""
    template = Template(text)
    if len(text) > _LONGEST:
        return f"has {len(text)} characters; the maximum is {_LONGEST}"
    if not template.is_valid():
        return "has a $ without a placeholder: write $$ for a dollar sign"
    unknown = [name for name in template.get_identifiers() if name not in PLACEHOLDERS]
    if unknown:
        known = ", ".join(f"${name}" for name in PLACEHOLDERS)
        return f"has the placeholder ${unknown[0]}, which does not exist; available are {known}"
    return None


def _template(value: str) -> str:
    fault = template_fault(value)
    if fault is not None:
        raise refusal(fault)
    return value


NotificationTemplate = Annotated[str, AfterValidator(_template)]
"""A setting that contains a template; empty for the default one."""
