"""The engine, as its parts and its runs see it."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from component.skills.threads import Threads
from component.storage.database import Database
from component.tasks.admit import Limits
from component.tasks.protocol import Question
from component.tasks.rows import Change

if TYPE_CHECKING:
    from component.tasks.run import Run

T = TypeVar("T")


class Keeper(Protocol):
    """Who writes, tells and starts for them.

    `instance` is the name of this life of the process, and changes when others take it for dead.
    """

    instance: str
    limits: Limits
    threads: Threads

    async def keep(self, op: Callable[[Database], T]) -> T:
        """Write, and keep trying: what a run has done must not be forgotten."""

    async def write(self, op: Callable[[Database], T]) -> T:
        """Write. Raises StorageError."""

    def tell(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Tell of what was committed; a question belongs to the last change."""

    def settled(self, changes: Sequence[Change], question: Question | None = None) -> None:
        """Tell of what others than a run have committed, and see what follows for runs here."""

    def kept(self, principal: str, size: int) -> None:
        """About `size` bytes are kept for a principal from now on."""

    def look_at(self, due: int | None) -> None:
        """The timer has something to look at, at that time."""

    def grown(self, run: "Run") -> None:
        """A run has become a task."""

    def soon(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Begin something, and do not wait for its end."""

    def later(self, seconds: float, work: Callable[[], Awaitable[Any]]) -> None:
        """Do something after a while."""
