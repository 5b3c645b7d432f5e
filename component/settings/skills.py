"""The sections about which skills are offered beside the shipped ones."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from component.settings.kinds import Section


class Conformance(Section):
    """The fixtures that a conformance kit calls."""

    enabled: bool = Field(
        default=False,
        description="Offer the skills named `conformance.*`. Leave it off in production.",
    )


class Skills(Section):
    """Skills of your own. Other keys of this section wait for a later release."""

    modules: tuple[str, ...] = Field(
        default=(),
        examples=[["my_skills", "./skills/report.py"]],
        description="Python modules (dotted names) or files whose @skill functions are offered.",
    )
    _later: tuple[str, ...] = PrivateAttr(default=())

    @property
    def later(self) -> tuple[str, ...]:
        """Names of the keys in this section that no part of this release reads."""
        return self._later

    @model_validator(mode="wrap")
    @classmethod
    def _accept_the_rest(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        known = {key: value for key, value in data.items() if key in cls.model_fields}
        section = handler(known)
        section._later = tuple(sorted(key for key in data if key not in known))  # noqa: SLF001 its own
        return section
