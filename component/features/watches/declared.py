"""The watches of the settings."""

from collections.abc import Sequence

import msgspec

from component.features.watches.conditions import Condition
from component.features.watches.settings import ENTRIES, WatchEntry, read_rate
from component.features.watches.watch import Rate, Watch
from component.proactive.configured import payer_of
from component.settings import Settings
from xep.jid import JID


def of_settings(settings: Settings) -> Sequence[Watch]:
    """Return the watches of the settings."""
    return [_watch(entry) for entry in settings[ENTRIES]]


def _watch(entry: WatchEntry) -> Watch:
    return Watch(
        name=entry.name,
        agent=entry.agent,
        principal=JID.parse(entry.principal),
        service=JID.parse(entry.service),
        node=entry.node,
        nick=entry.nick,
        where=tuple(Condition(**each.model_dump()) for each in entry.where),
        json=entry.json_filter,
        skill=entry.skill,
        goal=entry.goal,
        params=msgspec.Raw(msgspec.json.encode(entry.params)),
        tell=tuple(map(JID.parse, entry.tell)),
        silent=entry.silent,
        payer=payer_of(entry),
        budget_usd=entry.budget,
        rate=Rate(*read_rate(entry.rate)),
        thinning=entry.thinning,
        starts_per_hour=entry.starts_per_hour,
        priority=entry.priority,
        template=entry.template,
        deliver=entry.deliver,
    )
