"""A demo without most of its scenes."""

from collections.abc import Callable

from component.cli import demo_scenes, demo_tour


async def nothing(*_: object) -> None:
    """Take the place of a scene."""


def skip_scenes(put: Callable[[object, str, object], None], *but: str) -> None:
    """Let the demo show only the talk with a model, and some of its other scenes."""
    scenes = ("short_requests", "a_task", "a_confirmation", "a_form", "a_schedule", "a_stranger")
    for name in (*scenes, "a_memory", "a_watch"):
        if name not in but:
            put(demo_scenes, name, nothing)
    for name in ("_discover", "_execute", "_confirm", "_remind"):
        if name not in but:
            put(demo_tour, name, nothing)
