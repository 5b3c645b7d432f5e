"""URLs of requests that others chose, read in one way only, and which IP addresses are public.

A URL that two readers could take for different servers is refused: with user and password, with a
backslash or a control character, or with a host like `0x7f.1`, which C libraries read as an address
and others as a name.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

_LONGEST_URL: Final = 8_192
_FORBIDDEN: Final = r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]|[\ud800-\udfff]"
_NAME: Final = (
    r"(?=.{1,253}\.?$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
)
_NUMERIC_END: Final = r"(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$"
_PORTS: Final = {"https": 443, "http": 80}
_LOOPBACK: Final = ("localhost", "127.", "::1")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.ip_network("64:ff9b:1::/48")
_SITE_LOCAL: Final = ipaddress.ip_network("fec0::/10")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")


class HttpTarget(msgspec.Struct, frozen=True):
    """Where a request goes.

    `host` is a name in lower-case ASCII, or an IP address without brackets; `path` contains the
    query.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of the Host header (RFC 9110 §7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, as in `https://api.example.com:443`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL, without a fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"


def target_of(url: str) -> HttpTarget:
    """Read a URL. Raises ValueError with a sentence if it is not an unambiguous one of HTTP."""
    shown = ascii(url[:100])
    if len(url) > _LONGEST_URL or re.search(_FORBIDDEN, url):
        raise ValueError(f"{shown} is not a URL, or is longer than {_LONGEST_URL} characters.")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise ValueError(f"{shown} is not a URL.") from None
    if parts.scheme not in _PORTS:
        raise ValueError(f"{shown} is not an http or https URL.")
    if not host or "@" in parts.netloc or "%" in parts.netloc or port == 0:
        raise ValueError(f"{shown} needs a host, without user and password.")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=-._~")
    if parts.query:
        path += "?" + quote(parts.query, safe="/%:@!$&'()*+,;=-._~?[]")
    return HttpTarget(parts.scheme, _host(host, shown), port or _PORTS[parts.scheme], path)


def is_loopback(url: str) -> bool:
    """Return whether a URL is on this machine, of which no proxy knows."""
    return (urlsplit(url).hostname or "").startswith(_LOOPBACK)


def network_capability(url: str) -> str:
    """Return the capability `network:HOST:PORT:SCHEME` for a URL's server. Raises ValueError."""
    target = target_of(url)
    # A capability is split at colons, and an IPv6 address has some.
    return f"network:{target.host.replace(':', '%3A')}:{target.port}:{target.scheme}"


def _host(host: str, shown: str) -> str:
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host).compressed
        except ValueError:
            raise ValueError(f"{shown} has an address that is not one of IPv6.") from None
    if not host.isascii():
        import idna  # noqa: PLC0415 - few hosts need it

        try:
            host = idna.encode(host, uts46=True).decode("ascii")
        except idna.IDNAError:
            raise ValueError(f"{shown} has a host name that is not valid.") from None
    host = host.lower().removesuffix(".")
    if re.search(_NUMERIC_END, host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f"{shown} has an address that is not written as 192.0.2.1.") from None
    if not re.fullmatch(_NAME, host):
        raise ValueError(f"{shown} has a host name that is not valid.")
    return host


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet, also through tunnels and
    translations that contain an IPv4 address.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    translated = isinstance(found, ipaddress.IPv6Address) and found in _NAT64
    special = found.is_multicast or found.is_reserved or found.is_unspecified
    # Addresses of NAT64 are reserved or global, depending on Python's version.
    if not translated and (special or not found.is_global):
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return True
    if found in _SITE_LOCAL or found in _NAT64_LOCAL or found in _COMPATIBLE:
        return False
    within = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
    if within is None and found in _NAT64:
        within = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    return within is None or is_public(str(within))
