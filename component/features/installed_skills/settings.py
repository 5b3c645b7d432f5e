"""Whether skills need the approval of an admin, which other sections say."""

from component.config.model import Settings


def is_used(settings: Settings) -> bool:
    """Return whether there are directories of skills, or skills that somebody else describes."""
    return bool(settings.skill_roots or settings.described_sources)
