"""The effects of skills that somebody else describes, and whose texts they return."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from component.settings.kinds import Section, refusal

Taint = Annotated[
    Literal["person", "peer", "web", "file"],
    Field(
        description="Least trusted possible author of the texts in its results. person means that"
        " instructions in them may be followed."
    ),
]
SourceTaint = Annotated[
    Literal["person", "peer", "web", "file"],
    Field(
        description="Least trusted possible author of the texts in its results, and of its"
        " descriptions of tools. person means that instructions in them may be followed."
    ),
]


class Effects(Section):
    """The effects of skills that somebody else describes, in place of those that follow from it."""

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
        " and those that change nothing, are ever repeated.",
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.read_only and self.destructive:
            raise refusal("says read_only and destructive, which exclude each other: remove one")
        return self
