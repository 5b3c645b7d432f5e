"""The skill that lists which other services are connected."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from component.features.webhooks.settings import ENTRIES, WebhookEntry
from component.kernel.kernel import Kernel
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL
from xep.jid import JID

_PROVIDERS: Final = ("discord", "github", "slack")


class Incoming(msgspec.Struct, frozen=True, omit_defaults=True):
    """A webhook: when it starts work, what that is, and which skill replies with the result."""

    name: str
    when: str
    does: str
    replies: str = ""


class Integration(msgspec.Struct, frozen=True):
    """What is connected with a provider: the webhooks of a person, and the skills that they may
    use.
    """

    provider: str
    webhooks: Sequence[Incoming]
    skills: Sequence[str]


def integrations_skill(kernel: Callable[[], Kernel]) -> Skill:
    """Return the skill. `kernel` is called only while it runs."""

    @own_skill(
        title="Integrations",
        question="May I list which services are connected?",
        read_only=True,
        idempotent=True,
        open_world=False,
        capabilities=("webhooks:read",),
        tags=("slack", "discord", "github", "webhook", OPTIONAL),
        typical_duration=0.01,
        cost_usd=0.0,
    )
    async def integrations(context: Context) -> str:
        """List which services are connected, such as Slack, Discord and GitHub: the webhooks by
        which their events start work, and the skills that write there. An admin connects them.
        """
        person, now = JID.parse(context.principal), kernel()
        catalog = now.environment.catalog
        is_admin = person in catalog.admins
        entries = [
            entry
            for entry in now.settings[ENTRIES]
            if is_admin or JID.parse(entry.principal) == person
        ]
        found = list(_connected(entries, catalog.view(person).made()))
        return msgspec.json.encode(found).decode() if found else "None is connected."

    return integrations


def _connected(entries: Sequence[WebhookEntry], view: Iterable[Skill]) -> Iterable[Integration]:
    skills = [skill for skill in view if skill.annotations.open_world]
    for provider in (*_PROVIDERS, "generic"):
        webhooks = [_incoming(entry) for entry in entries if entry.kind == provider]
        names = [skill.name for skill in skills if provider in skill.tags]
        if webhooks or names:
            yield Integration(provider, webhooks, names)


def _incoming(entry: WebhookEntry) -> Incoming:
    when = " and ".join(filter(None, (", ".join(entry.events), entry.filter)))
    replies = "" if entry.reply is None else entry.reply.skill
    return Incoming(entry.name, when or "always", entry.goal or f"skill {entry.skill}", replies)
