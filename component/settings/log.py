"""The section about what is written to stderr."""

from typing import Literal

from pydantic import Field

from component.settings.kinds import Section


class Log(Section):
    """What is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least important level that is still written."
    )
    format: Literal["auto", "human", "json"] = Field(
        default="auto",
        description="human for people, json for one JSON object a line; auto is human on a "
        "terminal and json otherwise.",
    )
