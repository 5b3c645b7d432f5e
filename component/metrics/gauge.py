"""A metric that is read on request."""

from collections.abc import Mapping

import msgspec


class Gauge(msgspec.Struct, frozen=True):
    """A current value for each set of labels; the empty tuple if it has no labels.

    `total` says that it is a counter; its name then ends in `_total`.
    """

    name: str
    about: str
    values: Mapping[tuple[str, ...], float]
    labels: tuple[str, ...] = ()
    total: bool = False
