"""The section about the skills that a model may use after reading data of strangers."""

from typing import Literal

from pydantic import Field

from component.settings.kinds import Section


class Flow(Section):
    """A rule for a model that has read data of strangers: which skills it may use, and whether a
    person confirms it.

    Without a matching rule such a model may use skills that stay within the agent, and those of the
    open world with values that the person has written. With other values, skills that only read the
    open world are refused, and all others need a confirmation. The first rule that matches applies.
    """

    of: tuple[Literal["peer", "web", "file"], ...] = Field(
        min_length=1,
        examples=[["web", "file"]],
        description="Source of the data: other agents, the web, files.",
    )
    to: tuple[str, ...] = Field(
        min_length=1,
        examples=[["network:*.example.com:443"]],
        description="Capabilities of the skills to which the rule applies; `*` and `?` match any "
        "characters and any one character, `network` matches all that begin with `network:`. `*` "
        "also matches skills that declare none.",
    )
    then: Literal["allow", "confirm", "refuse"] = Field(
        examples=["allow"],
        description="allow runs such skills, confirm asks a person first, refuse rejects them.",
    )
