"""The work that schedules, watches and webhooks of the settings start."""

from component.budget.protocol import Payer
from component.proactive.work import Work
from component.settings.work import WorkEntry, read_payer
from xep.jid import JID


def work_of(entry: WorkEntry) -> Work:
    """Return the work that an entry of the settings starts. The caller sets its parameters, which
    can depend on the event.
    """
    return Work(
        agent=entry.agent,
        principal=JID.parse(entry.principal).bare,
        skill=entry.skill or None,
        goal=entry.goal or None,
        tell=tuple(JID.parse(person).bare for person in entry.tell),
        silent=entry.silent,
        payer=payer_of(entry),
        budget_usd=entry.budget,
        priority=entry.priority,
        template=entry.template,
        deliver=entry.deliver,
    )


def payer_of(entry: WorkEntry) -> Payer | None:
    """Return who pays for the work of an entry of the settings; None for the usual ones."""
    return Payer(*read_payer(entry.payer)) if entry.payer else None
