"""What a feature declares, and what it contributes to a running service."""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import msgspec
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from component.budget.protocol import Amount
from component.commands import AnyCommand
from component.config import Settings
from component.kernel.adhoc import Offers
from component.kernel.check import Check
from component.kernel.disco import Nodes
from component.kernel.events import EventListener, OnAvailability, OnGranted
from component.kernel.http_routes import HttpRoute
from component.kernel.kernel import Kernel
from component.kernel.rooms.rooms import IsVote
from component.kernel.stream import FormHandler, Handler
from component.link.messages.inbound import MessageStage
from component.metrics.counters import Gauge
from component.pubsub.service import ComputedNode, NodeFamily
from component.skills import Registry, Skill
from component.skills.sources import SkillSource
from component.store import Storage
from component.store.forgetting import Forget
from component.store.shared import Reload
from component.tasks.protocol import DeletedTask, Notice, Share

if TYPE_CHECKING:
    from component.agent.conversations import Fetch

F = TypeVar("F", bound="Feature")


class FeatureError(Exception):
    """The settings of a feature cannot be used. The message is a sentence for the operator."""


class Loop(Protocol):
    """Work that lasts as long as the service runs."""

    def __call__(self, *, task_status: TaskStatus[None]) -> Coroutine[Any, Any, None]:
        """Run until cancelled; report when it has started."""


def _nothing(*_: object) -> None:
    pass


def _same(source: SkillSource) -> SkillSource:
    return source


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What an opened feature contributes to the service.

    Attributes:
        handlers: serve stanzas.
        message_stages: handle messages of people.
        nodes: PubSub nodes whose items are computed from its tables.
        node_families: computed nodes that are made when they are asked for.
        commands: for people and operators; `kernel.commands` has those of all features.
        offers: sources of ad-hoc commands; the first that has a node serves it.
        forms: handle messages that carry a form, by its FORM_TYPE, in place of what handles chat.
        disco_nodes: nodes that service discovery describes; the first that has a node answers.
        loops: run as long as the service does; they are started in this order, and a service whose
            loop raises before it has started does not connect.
        sources: add, change and remove skills, with what the kernel has.
        pin: returns the source that is run in place of a source of skills; the same one unless an
            admin has to approve its descriptions.
        warnings: returns what an admin has to decide, in sentences.
        held_sources: returns the names of the sources of which descriptions wait for an approval.
        shared_changes: reload what other instances have changed, by topics.
        gauges: returns metrics that are read on request.
        forget: deletes the rows of a person.
        spent: returns what the work of a task has cost elsewhere. Raises StorageError.
        connected: called at each new session.
        missed: called when stanzas may have been lost, and presence was not received, because the
            connection of another instance was taken over. Raises StorageError.
        disconnected: called when a session is over.
        leaving: called before the stream is closed.
        announce: tells contacts that the agents are available. It is called when a session has
            begun, after everything that was missed is sent, and when the announced features change.
            Raises StorageError.
        closing: called before the stream is closed, and cancelled if it takes too long. Raises
            StorageError.
        available: called with the availability that a client of a contact shows.
        granted: called with an agent and a contact that has permitted it to see its presence.
        disco_features: returns the features that disco#info announces, besides those of handlers;
            `kernel.stream.features_changed` reports that they have changed.
        fetch: fetches the files of a message to an agent, and returns them.
        is_vote: returns whether a message to all in a room is a vote.
        task_ended: called with the id of a task that a model or a trigger has started, and that
            has ended.
        task_changed: called with each revision of a task. Never waits.
        task_deleted: called with a task that is no longer stored. Never waits.
        pubsub_listener: observes the notifications of other PubSub services.
        http_routes: serve HTTP requests.
        share: keeps a file where others get it, if the server's upload service does not take it.
            Raises CannotShare.

    Callbacks that would be called for each stanza or each revision of a task are None by default.
    """

    handlers: Sequence[Handler] = ()
    message_stages: Sequence[MessageStage] = ()
    nodes: Sequence[ComputedNode] = ()
    node_families: Sequence[NodeFamily] = ()
    commands: Sequence[AnyCommand] = ()
    offers: Sequence[Offers] = ()
    forms: Mapping[str, FormHandler] = {}
    disco_nodes: Sequence[Nodes] = ()
    loops: Sequence[Loop] = ()
    sources: Sequence[SkillSource] = ()
    pin: Callable[[SkillSource], SkillSource] = _same
    warnings: Callable[[], Sequence[str]] = tuple
    held_sources: Callable[[], Sequence[str]] = tuple
    shared_changes: Mapping[str, Reload] = {}
    gauges: Callable[[], Iterable[Gauge]] = tuple
    forget: Forget | None = None
    spent: Callable[[str], Awaitable[Amount]] | None = None
    connected: Callable[[], None] = _nothing
    missed: Callable[[], Awaitable[None]] = checkpoint
    disconnected: Callable[[], None] = _nothing
    leaving: Callable[[], None] = _nothing
    announce: Callable[[], Awaitable[None]] = checkpoint
    closing: Callable[[], Awaitable[None]] = checkpoint
    available: OnAvailability | None = None
    granted: OnGranted | None = None
    disco_features: Callable[[], Sequence[str]] = tuple
    fetch: "Fetch | None" = None
    is_vote: IsVote | None = None
    task_ended: Callable[[str], None] | None = None
    task_changed: Callable[[Notice], None] | None = None
    task_deleted: Callable[[DeletedTask], None] | None = None
    pubsub_listener: EventListener | None = None
    http_routes: Sequence[HttpRoute] = ()
    share: Share | None = None


class Feature:
    """One thing that the service does.

    The order of calls is: `skills`, `prepare`, `open`. Commands that list skills call only `skills`
    and the sources; the command line calls only `offline_commands` if no service runs.

    If one of the settings in `reloads` is changed while the service runs, the feature is closed,
    and another object of its class is opened with the new settings.

    Args:
        settings: the settings.

    Attributes:
        after: the features that this one uses, and that are opened before it.
        reloads: the settings with which it is opened again: names of sections, or
            `section.key`.
    """

    after: ClassVar[Sequence[type["Feature"]]] = ()
    reloads: ClassVar[Sequence[str]] = ()

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def skills(self) -> Iterable[Skill]:
        """Return the skills that it offers. They are called only after `open`."""
        return ()

    def sources(self) -> Iterable[SkillSource]:
        """Return the sources of skills that need only the settings and this machine."""
        return ()

    def remote_sources(self) -> Iterable[SkillSource]:
        """Return the sources of skills of other programs; the connection does not wait for them."""
        return ()

    def prepare(self, registry: Registry) -> None:
        """Check what the settings say against the skills that are offered.

        Raises FeatureError: they cannot be used, so the service does not start.
        """

    def open(self, kernel: Kernel) -> Opened:
        """Make its objects, and return what they contribute. Nothing runs yet, and nothing that
        exists is changed. Raises FeatureError.
        """
        raise NotImplementedError

    def reopen(self, kernel: Kernel, before: Self) -> Opened:
        """Do the same as `open` after the settings were changed. `before` is the feature whose
        place this one takes, and which still runs; what it has made may be used again.
        """
        del before
        return self.open(kernel)

    async def checks(self, registry: Registry) -> Sequence[Check]:
        """Return the checks of `xmpp-agent doctor`. No service runs."""
        await checkpoint()
        return ()

    async def availability(self) -> AsyncIterator[Check]:
        """Yield the checks of `xmpp-agent doctor` that are done even while a service runs."""
        none: Sequence[Check] = ()
        for check in none:
            yield check

    def offline_commands(self, storage: Storage) -> Sequence[AnyCommand]:
        """Return the commands that work on the database while no service runs."""
        return ()
