"""Webhooks: the listener, and the webhooks of the settings."""

import ipaddress
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.config import Settings
from component.features.feature import Feature, Opened
from component.features.webhooks import TURNED_ON_BY
from component.features.webhooks.app import ANSWER_S, WebhookApp
from component.features.webhooks.listener import (
    ListenError,
    WebhookListener,
    check_extra,
    listening_socket,
)
from component.features.webhooks.rows import DeliveryStore
from component.features.webhooks.settings import ENTRIES, LISTENER, WebhookEntry
from component.features.webhooks.webhook import Webhook
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.kernel.options import make_policy
from component.policy import PolicyError
from component.skills import Registry
from xep.jid import JID

_log = structlog.get_logger("component.features.webhooks")


class WebhookFeature(Feature):
    """The listener for webhooks, and the webhooks of the settings."""

    reloads: ClassVar = TURNED_ON_BY

    def open(self, kernel: Kernel) -> Opened:
        """Make the listener."""
        limits = self.settings[LISTENER]
        app = WebhookApp(
            webhooks_of(self.settings),
            kernel.starter,
            DeliveryStore(kernel.storage, limits.remember_s),
            limits,
        )

        async def listen(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            """Listen until cancelled. If the address cannot be used, or the extra is missing, that
            is logged and the service runs without webhooks.
            """
            assert limits.port is not None, "the feature is used"
            silence_s = math.ceil(limits.body_timeout_s + ANSWER_S) + 5
            try:
                listener = WebhookListener(app, limits.host, limits.port, silence_s=silence_s)
                await listener.run(task_status=task_status)
            except ListenError as error:
                _log.error("webhooks cannot be received", reason=str(error))
                task_status.started()

        return Opened(loops=(listen,))

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Check whether webhooks can be received, and what each of them starts."""
        return await system.in_thread(lambda: list(check_webhooks(self.settings, registry)))


def webhooks_of(settings: Settings) -> Sequence[Webhook]:
    """Return the webhooks that the settings declare."""
    window_s = settings[LISTENER].replay_window_s
    return [Webhook(entry, window_s) for entry in settings[ENTRIES]]


def check_webhooks(settings: Settings, registry: Registry) -> Iterator[Check]:
    """Check whether webhooks can be received, and what each of them starts."""
    limits = settings[LISTENER]
    if limits.port is None:
        return
    try:
        check_extra()
        listening_socket(limits.host, limits.port).close()
    except ListenError as error:
        yield Check("webhooks", "failed", str(error))
    else:
        where = f"{limits.host} port {limits.port}"
        if not settings[ENTRIES]:
            text = f"nothing is done with requests to {where}: add a [[webhook]]"
            yield Check("webhooks", "warning", text)
        elif not ipaddress.ip_address(limits.host).is_loopback:
            text = (
                f"{where} can be reached by other machines, and there is no TLS: set webhooks.host"
                " to 127.0.0.1 behind a reverse proxy, or let only the proxy reach it"
            )
            yield Check("webhooks", "warning", text)
        else:
            yield Check("webhooks", "ok", f"{len(settings[ENTRIES])} can be received on {where}")
    yield from _entries(settings, registry)


def _entries(settings: Settings, registry: Registry) -> Iterator[Check]:
    try:
        policy = make_policy(settings)
    except PolicyError:
        return  # told already
    view = registry.viewer(policy.view_key, policy.may_use)
    for entry in settings[ENTRIES]:
        principal = JID.parse(entry.principal)
        if not policy.admits(principal):
            text = f"{principal} is not admitted: see [agent]"
            yield _wrong(entry, text)
        elif entry.skill and registry.get(entry.skill) is None:
            text = f"there is no skill {entry.skill}: `xmpp-agent skills list` shows them"
            yield _wrong(entry, text)
        elif entry.skill and view(principal).get(entry.skill) is None:
            yield _wrong(entry, f"{principal} may not use {entry.skill}: see [policy]")


def _wrong(entry: WebhookEntry, text: str) -> Check:
    return Check(f"webhook {entry.name}", "failed", f"its deliveries start nothing: {text}")


FEATURE = WebhookFeature
