"""The webhooks of the settings."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar

from component import system
from component.config import Settings
from component.features.feature import Feature, Opened
from component.features.webhooks import TURNED_ON_BY
from component.features.webhooks.app import WebhookApp
from component.features.webhooks.replies import Replies
from component.features.webhooks.rows import DeliveryStore, forget
from component.features.webhooks.settings import ENTRIES, LIMITS, WebhookEntry
from component.features.webhooks.skills import integrations_skill
from component.features.webhooks.webhook import Webhook
from component.kernel.check import Check
from component.kernel.http_routes import HttpRoute
from component.kernel.kernel import Kernel
from component.kernel.options import make_policy
from component.policy import PolicyError
from component.skills import Registry, Skill
from xep.jid import JID


class WebhookFeature(Feature):
    """The webhooks of the settings."""

    reloads: ClassVar = TURNED_ON_BY

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._kernel: Kernel | None = None

    def _opened(self) -> Kernel:
        assert self._kernel is not None, "skills are called while the service runs"
        return self._kernel

    def skills(self) -> Iterable[Skill]:
        """Return the skill that lists what is connected."""
        return (integrations_skill(self._opened),)

    def open(self, kernel: Kernel) -> Opened:
        """Make what answers deliveries, and what replies to them."""
        self._kernel = kernel
        limits = self.settings[LIMITS]
        replies = Replies(kernel)
        app = WebhookApp(
            webhooks_of(self.settings),
            kernel.starter,
            DeliveryStore(kernel.storage, limits.remember_s),
            limits,
            replies.wake,
        )
        return Opened(
            http_routes=(HttpRoute("", app),),
            loops=(replies.run,),
            task_ended=lambda _task: replies.wake(),
            forget=forget,
        )

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Check what each webhook starts."""
        return await system.in_thread(lambda: list(check_webhooks(self.settings, registry)))


def webhooks_of(settings: Settings) -> Sequence[Webhook]:
    """Return the webhooks that the settings declare."""
    window_s = settings[LIMITS].replay_window_s
    return [Webhook(entry, window_s) for entry in settings[ENTRIES]]


def check_webhooks(settings: Settings, registry: Registry) -> Iterator[Check]:
    """Check what each webhook starts."""
    yield Check("webhooks", "ok", f"{len(settings[ENTRIES])} are declared")
    yield from _entries(settings, registry)


def _entries(settings: Settings, registry: Registry) -> Iterator[Check]:
    try:
        policy = make_policy(settings)
    except PolicyError:
        return  # told already
    view = registry.viewer(policy.view_key, policy.may_use)
    installed = _in_directories(settings)
    for entry in settings[ENTRIES]:
        principal = JID.parse(entry.principal)
        if not policy.admits(principal):
            text = f"{principal} is not admitted: see [agent]"
            yield _wrong(entry, "its deliveries start nothing", text)
            continue
        replies = "" if entry.reply is None else entry.reply.skill
        for what, name in (
            ("its deliveries start nothing", entry.skill),
            ("its replies are not sent", replies),
        ):
            if not name or name in installed:
                continue
            if registry.get(name) is None:
                text = f"there is no skill {name}: `xmpp-agent skills list` shows them"
                yield _wrong(entry, what, text)
            elif view(principal).get(name) is None:
                yield _wrong(entry, what, f"{principal} may not use {name}: see [policy]")


def _in_directories(settings: Settings) -> Collection[str]:
    """Return the names of skills that are offered when an admin has approved them. Blocks."""
    from component.skill_directories.content import read_roots  # noqa: PLC0415 - rarely needed

    found, _ = read_roots([root.absolute() for root in settings.skill_roots], {})
    return {one.name for one in found.values()}


def _wrong(entry: WebhookEntry, what: str, text: str) -> Check:
    return Check(f"webhook {entry.name}", "failed", f"{what}: {text}")


FEATURE = WebhookFeature
