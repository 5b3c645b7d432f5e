"""The effects of skills that a description of others, and not code, defines."""

from typing import Self

from pydantic import Field, model_validator

from component.settings.kinds import Section, refusal


class Effects(Section):
    """The effects of skills, in place of those that their methods suggest."""

    read_only: bool | None = Field(
        default=None, examples=[True], description="Whether calls change nothing."
    )
    destructive: bool | None = Field(
        default=None,
        examples=[False],
        description="Whether calls may destroy something. People are asked before such a call.",
    )
    idempotent: bool | None = Field(
        default=None,
        examples=[True],
        description="Whether calling twice has the same effect as calling once. Only such calls,"
        " and those that change nothing, are repeated when they fail.",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.read_only and self.destructive:
            raise refusal("says read_only and destructive, which exclude each other: remove one")
        return self
