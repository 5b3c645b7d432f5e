"""Parameters of requests that come from the settings of a model."""

from collections.abc import Mapping
from typing import Any

import structlog

from component.models.catalog import Target
from component.models.faults import Fault

_log = structlog.get_logger("component.models")


def merged(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the parameters of `extra_body`; objects are merged."""
    out = dict(body)
    for key, value in extra.items():
        there = out.get(key)
        both = isinstance(there, dict) and isinstance(value, Mapping)
        out[key] = merged(there, value) if both else value  # type: ignore[arg-type]  # both says so
    return out


class LeftOut:
    """Parameters that a model has rejected, and that are not sent to it any more.

    Args:
        target: the model.
        optional: the parameters that a request can do without.
    """

    def __init__(self, target: Target, optional: tuple[str, ...]) -> None:
        self._target = target
        self._optional = optional
        self._left_out: set[str] = set()

    def __contains__(self, parameter: str) -> bool:
        """Whether a parameter is left out."""
        return parameter in self._left_out

    def add(self, fault: Fault) -> bool:
        """Leave out the parameter that the fault names; False if it cannot be left out."""
        for parameter in self._optional:
            if parameter not in self._left_out and fault.blames(parameter):
                self._left_out.add(parameter)
                _log.warning(
                    "the model does without",
                    parameter=parameter,
                    model=self._target.choice.model,
                    url=self._target.where.url,
                )
                return True
        return False

    def remove_from(self, body: dict[str, Any]) -> None:
        """Remove these parameters from a body."""
        for parameter in self._left_out:
            body.pop(parameter, None)
