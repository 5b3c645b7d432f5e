"""The checks of `xmpp-agent doctor` about webhooks: the listener, and the work that they start."""

import ipaddress
from collections.abc import Iterator

from component.features.webhooks.listener import ListenError, check_extra, listening_socket
from component.features.webhooks.settings import ENTRIES, LISTENER, WebhookEntry
from component.kernel.check import Check
from component.kernel.options import make_policy
from component.policy import PolicyError
from component.settings import Settings
from component.skills import Registry
from xep.jid import JID


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
