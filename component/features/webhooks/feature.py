"""Webhooks: the listener, and the webhooks of the settings."""

import math
from collections.abc import Sequence

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.features.feature import Feature, Opened
from component.features.webhooks.app import ANSWER_S, Bounds, WebhookApp
from component.features.webhooks.checks import check_webhooks
from component.features.webhooks.listener import ListenError, WebhookListener
from component.features.webhooks.rows import DeliveryStore
from component.features.webhooks.settings import ENTRIES, LISTENER, Listener, WebhookEntry
from component.features.webhooks.signatures import GitHubVerifier, StandardVerifier, Verifier
from component.features.webhooks.webhook import Webhook
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.proactive.configured import work_of
from component.settings import Settings
from component.settings.standard_webhooks import standard_key
from component.skills import Registry

_log = structlog.get_logger("component.features.webhooks")


class WebhookFeature(Feature):
    """The listener for webhooks, and the webhooks of the settings."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the listener."""
        limits = self.settings[LISTENER]
        app = WebhookApp(
            webhooks_of(self.settings),
            kernel.work.starter,
            DeliveryStore(kernel.storage, limits.remember_s),
            Bounds(
                body_bytes=limits.max_body_bytes,
                depth=limits.max_depth,
                body_s=limits.body_timeout_s,
                requests=limits.requests_total,
            ),
        )

        async def listen(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            await _listen(app, limits, task_status)

        return Opened(loops=(listen,))

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Check whether webhooks can be received, and what each of them starts."""
        return await system.in_thread(lambda: list(check_webhooks(self.settings, registry)))


async def _listen(app: WebhookApp, limits: Listener, task_status: TaskStatus[None]) -> None:
    """Listen until cancelled.

    If the address cannot be used, or the extra is missing, that is logged and the service runs
    without webhooks.
    """
    assert limits.port is not None, "the feature is used"
    try:
        silence_s = math.ceil(limits.body_timeout_s + ANSWER_S) + 5
        listener = WebhookListener(app, limits.host, limits.port, silence_s=silence_s)
        await listener.run(task_status=task_status)
    except ListenError as error:
        _log.error("webhooks cannot be received", reason=str(error))
        task_status.started()


def webhooks_of(settings: Settings) -> Sequence[Webhook]:
    """Return the webhooks that the settings declare."""
    return [_webhook(entry, settings[LISTENER].replay_window_s) for entry in settings[ENTRIES]]


def _webhook(entry: WebhookEntry, window_s: float) -> Webhook:
    return Webhook(
        entry.name,
        entry.url_path,
        _verifier(entry, window_s),
        work_of(entry),
        events=entry.events,
        filter=entry.filter,
        select=entry.select,
        params=entry.params,
        per_minute=entry.per_minute,
        forms=entry.kind == "github",
    )


def _verifier(entry: WebhookEntry, window_s: float) -> Verifier:
    given = [entry.secret.get_secret_value(), entry.previous_secret.get_secret_value()]
    secrets = [secret for secret in given if secret]
    if entry.kind == "github":
        return GitHubVerifier([secret.encode() for secret in secrets])
    keys = [standard_key(secret) for secret in secrets]
    return StandardVerifier([key for key in keys if key is not None], window_s)


FEATURE = WebhookFeature
