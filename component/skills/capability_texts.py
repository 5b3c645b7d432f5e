"""Capabilities of skills whose code declares them as texts: `@skill(capabilities=[…])`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import unquote

from component.skills.capabilities import (
    Capabilities,
    CredentialName,
    Endpoint,
    ModelUse,
    Recipient,
)

_MOST_TOKENS = 1_000_000


def capabilities_of(texts: Iterable[str]) -> Capabilities:
    """Return what texts such as `network:api.example.com:443:https` name.

    A network capability without a scheme is one of https, or of http for port 80. What names no
    function of the service, as `memory:write` of a built-in skill, is left out.
    """
    network: list[Endpoint] = []
    credentials: list[CredentialName] = []
    recipients: list[Recipient] = []
    given = set(texts)
    for text in sorted(given):
        kind, _, rest = text.partition(":")
        with suppress(ValueError):
            if kind == "network":
                network.append(_endpoint(rest))
            elif kind == "credential":
                credentials.append(CredentialName.parse(rest))
            elif kind == "xmpp":
                recipients.append(Recipient.parse(rest))
    return Capabilities(
        network=tuple(dict.fromkeys(network)),
        credential=tuple(credentials),
        xmpp=tuple(recipients),
        llm=ModelUse(max_tokens=_MOST_TOKENS) if "llm" in given else None,
        memory_read=("skill",) if "memory:read:skill" in given else (),
        memory_write=("skill",) if "memory:write:skill" in given else (),
    )


def _endpoint(text: str) -> Endpoint:
    """Read `HOST:PORT:SCHEME` or `HOST:PORT`; an IPv6 address has `%3A` for each colon."""
    host, _, rest = text.partition(":")
    port, _, scheme = rest.partition(":")
    host = unquote(host)
    shown = f"[{host}]" if ":" in host else host
    return Endpoint.parse(f"{scheme or ('http' if port == '80' else 'https')}://{shown}:{port}")
