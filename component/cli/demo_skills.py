"""The skills of the demo's agent besides the built-in ones: one of each kind."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from component.skills import Context, skill


@skill(read_only=True, open_world=False)
async def compose(topic: str, context: Context) -> str:
    """Write a verse, and show each line as it is written.

    Args:
        topic: What it is about.
    """
    lines = (f"Of {topic} I sing,", "line by line,", "and now I have sung.")
    for line in lines:
        await context.output("verse", f"{line}\n", last=line is lines[-1])
    return f"{len(lines)} lines"


@skill(name="empty-folder", question="May I empty the folder {folder}?", inline=True)
def empty_folder(
    folder: Literal["Drafts", "Archive"], older_than_days: Annotated[int, msgspec.Meta(ge=1)] = 30
) -> str:
    """Pretend to delete old notes from a folder.

    Args:
        folder: From which one.
        older_than_days: How many days old a note must be.
    """
    return f"{folder}: nothing is older than {older_than_days} days any more."


@skill(name="trip-cost", read_only=True, open_world=False, inline=True)
def trip_cost(
    kilometres: Annotated[int, msgspec.Meta(ge=1, le=20_000)],
    by: Literal["train", "car", "bicycle"],
    people: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1,
) -> str:
    """Say about what a trip costs.

    Args:
        kilometres: How far it is.
        by: How to get there.
        people: How many travel.
    """
    euros = {"train": 0.2 * people, "car": 0.3, "bicycle": 0.0}[by] * kilometres
    return f"about {euros:.0f} euros"
