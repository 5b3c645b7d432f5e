"""A demo without most of its scenes. Processes of the demo import this, so it needs little."""

from collections.abc import Callable

from component.cli import demo_memory, demo_scenes, demo_watches


async def nothing(*_: object) -> None:
    """Take the place of a scene."""


def skip_scenes(put: Callable[[object, str, object], None], *but: str) -> None:
    """Let the demo show only the talk with a model, and some of the scenes before it."""
    scenes = ("short_requests", "a_task", "a_confirmation", "a_form", "a_schedule", "a_stranger")
    owners = {demo_memory: ("a_memory",), demo_watches: ("a_watch",), demo_scenes: scenes}
    for owner, names in owners.items():
        for name in names:
            if name not in but:
                put(owner, name, nothing)
