"""What a part of a life has."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from component.skills import Skill
from tests.simulation.life import Action, Draw
from tests.simulation.rules import Rule

if TYPE_CHECKING:
    from tests.simulation.world import World


class Area:
    """A part of a life.

    Attributes:
        draws: draw actions, each with how often it happens beside the others.
        rules: what must hold; each looks at the history of a life.
        settings: sections that it adds to `agent.toml`.
    """

    draws: ClassVar[Mapping[Draw, int]] = {}
    actions: ClassVar[tuple[type[Action], ...]] = ()
    rules: ClassVar[Sequence[type[Rule]]] = ()
    settings: Mapping[str, Any] = {}

    def __init__(self, world: "World") -> None:
        self.world = world

    def skills(self) -> Sequence[Skill]:
        """Return skills that the service has."""
        return ()

    async def begin(self) -> None:
        """Prepare, before the service starts for the first time."""

    def end(self) -> None:
        """Undo what `begin` has changed outside of the life."""

    async def perform(self, action: Any) -> None:
        """Let an action of this area happen; other actions do not wait for it."""

    def heal(self) -> None:
        """End all faults."""

    async def finish(self) -> None:
        """Ask for what the rules have to know at the end."""
