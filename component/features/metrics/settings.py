"""The section about the page with metrics and health checks."""

import ipaddress
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from component.config.kinds import Section, refusal
from component.config.model import Settings
from component.config.sections import Top, table


def _listen(value: str) -> str:
    if value and address_of(value) is None:
        raise refusal("must be an address and a port, such as 127.0.0.1:9465 or [::1]:9465")
    return value


def address_of(text: str) -> tuple[str, int] | None:
    """Return host and port of `127.0.0.1:9465` or `[::1]:9465`; None for any other text."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not colon or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    try:
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        return None


class Metrics(Section):
    """Metrics for Prometheus and health checks, served over HTTP."""

    listen: Annotated[str, AfterValidator(_listen)] = Field(default="", examples=["127.0.0.1:9465"])
    """Address and port that serve /metrics, /healthz and /readyz. Default: none."""
    anywhere: bool = False
    """Listen also on an address that other machines can reach. There is no encryption and no
    authentication, and the metrics contain the names of skills and models.
    """

    @field_validator("anywhere")
    @classmethod
    def _loopback(cls, value: bool, info: ValidationInfo) -> bool:
        found = address_of(info.data.get("listen", ""))
        if found is not None and not value and not ipaddress.ip_address(found[0]).is_loopback:
            raise refusal(
                "is an address that other machines can reach: use 127.0.0.1 or ::1, or set "
                "metrics.anywhere = true if a firewall blocks strangers",
                key="metrics.listen",
            )
        return value

    @property
    def address(self) -> tuple[str, int] | None:
        """The host and port to listen on; None for none."""
        return address_of(self.listen)


METRICS: Final = table("metrics", Metrics)
SECTIONS: Final[tuple[Top[Any], ...]] = (METRICS,)


def is_used(settings: Settings) -> bool:
    """Return whether metrics are served."""
    return settings[METRICS].address is not None
