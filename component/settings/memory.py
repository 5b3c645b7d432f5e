"""The sections about what agents remember, and how long a conversation lasts."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from component.settings.kinds import Count, Section


class Memory(Section):
    """What the agents remember of each person, as files."""

    backend: Literal["markdown"] = Field(
        default="markdown", description="How memory is kept: files that people can read and edit."
    )
    path: Path = Field(
        default=Path("./data/memory"),
        description="Directory of the files; made if it is missing. That of an existing Fluux Agent"
        " can be used as it is.",
    )
    recall: Annotated[int, Field(ge=0, le=50)] = Field(
        default=5, description="Most memories that are put before the model with a message."
    )
    item_bytes: Count = Field(
        default=65536, description="Most bytes of one memory, its title and body together."
    )
    items_per_principal: Count = Field(
        default=100000, description="Most memories of one principal."
    )


class Session(Section):
    """One conversation of a person with an agent."""

    idle_timeout_mins: Annotated[int, Field(ge=0)] = Field(
        default=240,
        description="Minutes of silence after which the next message begins a new conversation; the"
        " old one is kept in `sessions/`. 0 means never.",
    )
    history_tokens: Count = Field(
        default=8192,
        description="Most tokens of earlier messages that the model is shown; what is older is"
        " summarised.",
    )
