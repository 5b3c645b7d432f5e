"""Skills that admins approve: those of directories, and those that somebody else describes.

`directories` offers approved skills of directories. A model reads descriptions with every prompt,
so their authors can try to instruct it: `descriptions` offers the skills of MCP servers, APIs and
workers with the descriptions that are approved. `personas` makes packages of approved personas.
"""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there are directories of skills, or skills that somebody else describes."""
    return bool(settings.skill_roots or settings.described_sources)
