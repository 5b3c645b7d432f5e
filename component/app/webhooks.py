"""Webhooks: the listener, and the webhooks of the settings."""

import math
from collections.abc import Sequence

import anyio
import structlog
from anyio.abc import TaskStatus

from component.kernel.environment import Environment
from component.proactive.configured import work_of
from component.proactive.starter import Starter
from component.settings import Settings
from component.settings.webhooks import WebhookEntry, standard_key
from component.storage.deliveries import DeliveryStore
from component.webhooks.app import ANSWER_S, Bounds, WebhookApp
from component.webhooks.listener import ListenError, WebhookListener
from component.webhooks.signatures import GitHubVerifier, StandardVerifier, Verifier
from component.webhooks.webhook import Webhook

_log = structlog.get_logger("component.app")


async def serve_webhooks(
    environment: Environment,
    starter: Starter,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Listen for webhooks until cancelled.

    If the address cannot be used, or the extra is missing, that is logged and the service runs
    without them.
    """
    settings = environment.settings
    limits = settings.webhooks
    assert limits.port is not None, "called only where webhooks are turned on"
    app = WebhookApp(
        webhooks_of(settings),
        starter,
        DeliveryStore(environment.storage, limits.remember_s),
        Bounds(
            body_bytes=limits.max_body_bytes,
            depth=limits.max_depth,
            body_s=limits.body_timeout_s,
            requests=limits.requests_total,
        ),
    )
    try:
        silence_s = math.ceil(limits.body_timeout_s + ANSWER_S) + 5
        listener = WebhookListener(app, limits.host, limits.port, silence_s=silence_s)
        await listener.run(task_status=task_status)
    except ListenError as error:
        _log.error("webhooks cannot be received", reason=str(error))
        task_status.started()


def webhooks_of(settings: Settings) -> Sequence[Webhook]:
    """Return the webhooks that the settings declare."""
    return [_webhook(entry, settings.webhooks.replay_window_s) for entry in settings.webhook]


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
