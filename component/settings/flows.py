"""The section about what data of strangers may reach."""

from typing import Literal

from pydantic import Field

from component.settings.kinds import Section


class Flow(Section):
    """What a model that was shown data of strangers may use without a person's word.

    Unless a rule says otherwise such a model may read, and do what stays within the agent; for
    everything that reaches into the open world somebody is asked. The first rule that matches
    counts.
    """

    of: tuple[Literal["peer", "web", "file"], ...] = Field(
        min_length=1,
        examples=[["web", "file"]],
        description="Where the data comes from: other agents, the web, files.",
    )
    to: tuple[str, ...] = Field(
        min_length=1,
        examples=[["network:*.example.com:443"]],
        description="Capabilities of the skills that it may or may not reach; `*` and `?` stand for"
        " any characters and any one character, `network` for all that begins with `network:`. `*`"
        " also stands for skills that declare none.",
    )
    then: Literal["allow", "confirm", "refuse"] = Field(
        examples=["allow"],
        description="allow runs such skills as ever, confirm asks a person first, refuse runs none"
        " of them.",
    )
