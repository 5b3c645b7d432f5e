"""Where a domain has its servers for clients: SRV records (RFC 6120 §3.2, XEP-0368).

dnspython is loaded when the first name is looked up.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from component import system

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver
    from dns.rdtypes.IN.SRV import SRV

_SERVICES: Final = (("_xmpps-client._tcp", True), ("_xmpp-client._tcp", False))
"""The services, and whether their ports use TLS from the first byte."""
_LIFETIME_S: Final = 3.0
"""Seconds for one lookup, over all name servers."""


class Target(msgspec.Struct, frozen=True):
    """A server of a domain; with `direct_tls`, TLS begins with the first byte."""

    host: str
    port: int
    direct_tls: bool


class LookupFailedError(Exception):
    """The records could not be looked up. The text says why."""


class NotOfferedError(LookupFailedError):
    """The domain says that it has no server for clients (RFC 2782, a target of ".")."""


async def look_up(
    domain: str, resolver: "Resolver | None" = None, draw: Callable[[], float] = system.random
) -> Sequence[Target]:
    """Look up the servers of a domain, in the order in which to try them; empty if it has none.

    Records of both services are in one list: by priority, and at random by weight among those of
    one priority (RFC 2782, XEP-0368 §3).

    Args:
        resolver: whom to ask; that of the system if None.
        draw: gives a number in [0, 1).

    Raises:
        NotOfferedError: the domain names "." for each service that it has records of.
        LookupFailedError: no name server answers.
    """
    try:
        import dns.asyncbackend  # noqa: PLC0415 - only needed here, and slow to load
        import dns.asyncresolver  # noqa: PLC0415
        import dns.exception  # noqa: PLC0415
        import dns.resolver  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise LookupFailedError(
            "dnspython is not installed: pip install 'xmpp-agent-component[client]'"
        ) from error
    found: list[tuple[SRV, bool]] = []
    refused = False
    for service, direct_tls in _SERVICES:
        try:
            ask = resolver or dns.asyncresolver.get_default_resolver()
            name = f"{service}.{domain}"
            # Without `backend` dnspython keeps using the event loop of its first lookup.
            backend = dns.asyncbackend.get_backend(dns.asyncbackend.sniff())
            answer = await ask.resolve(
                name, "SRV", search=False, lifetime=_LIFETIME_S, backend=backend
            )
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            continue
        except (dns.exception.DNSException, OSError) as error:
            raise LookupFailedError(str(error) or type(error).__name__) from error
        records = [record for record in answer if str(record.target) != "."]
        refused = refused or len(records) < len(answer)
        found += [(record, direct_tls) for record in records]
    if refused and not found:
        raise NotOfferedError(f"{domain} offers no service for clients")
    return [
        Target(str(record.target).rstrip("."), record.port, direct_tls)
        for record, direct_tls in _in_order(found, draw)
    ]


def _in_order(
    records: "list[tuple[SRV, bool]]", draw: Callable[[], float]
) -> "list[tuple[SRV, bool]]":
    """Sort by priority; within one, draw by weight (RFC 2782, "Weight")."""
    out = []
    # Weights of 0 come first, so that they have a small chance beside others.
    left = sorted(records, key=lambda each: (each[0].priority, each[0].weight))
    while left:
        same = [each for each in left if each[0].priority == left[0][0].priority]
        at = draw() * (sum(record.weight for record, _ in same) + 1)
        for each in same:
            at -= each[0].weight
            if at < 1:
                break
        out.append(each)
        left.remove(each)
    return out
