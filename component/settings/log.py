"""The section about the log."""

from typing import Literal

from pydantic import Field

from component.settings.kinds import Section


class Log(Section):
    """Log output on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is written."
    )
    format: Literal["auto", "human", "json"] = Field(
        default="auto",
        description="human for text, json for one JSON object per line; auto is human on a"
        " terminal and json otherwise.",
    )
