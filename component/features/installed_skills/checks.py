"""The checks of `xmpp-agent doctor` about skills that admins approve. They block."""

from collections.abc import Sequence

from component.features.installed_skills.descriptions import waiting_in
from component.features.installed_skills.rows import all_rows
from component.kernel.check import Check
from component.settings import Settings
from component.skill_directories.content import APPROVED, ContentStore
from component.skill_directories.found import look
from component.storage import StorageError
from component.storage.storage import peek


def check_directories(settings: Settings) -> Sequence[Check]:
    """Look at the manifests of the skills that are installed in directories."""
    if not settings.skill_roots:
        return ()
    proposed = settings.proposals_path
    roots = [one for one in settings.skill_roots if one != proposed or one.exists()]
    found, problems = look([one.absolute() for one in roots], {})
    broken = [one for one in found.values() if one.content is None]
    checks = [Check("skills", "warning", problem) for problem in problems]
    checks += [
        Check("skills", "warning", f"{one.name} cannot be loaded: {one.problem}") for one in broken
    ]
    if not checks:
        text = f"{len(found)} skills are installed; `xmpp-agent skills list` says which are offered"
        checks.append(Check("skills", "ok", text))
    copies = ContentStore(settings.storage.path / APPROVED).names()
    waiting = [
        f"{one.name} (by {one.proposal.principal})"
        for one in found.values()
        if one.proposal is not None and one.content is not None and one.content.digest not in copies
    ]
    if waiting:
        text = f"proposed and not approved: {', '.join(waiting)}; see `xmpp-agent skills show`"
        checks.append(Check("proposals", "warning", text))
    return checks


def check_descriptions(settings: Settings) -> Check | None:
    """Whether descriptions of skills by others wait for an approval; None if there are none."""
    if not settings.described_sources:
        return None
    postgres = settings.storage.postgres.get_secret_value()
    try:
        rows = peek(settings.storage.path, postgres, all_rows) or ()
    except StorageError:
        return None  # the check of the storage says why
    warnings = waiting_in([row for row in rows if row.source in settings.described_sources])
    return Check("descriptions", "warning", "\n".join(warnings)) if warnings else None
