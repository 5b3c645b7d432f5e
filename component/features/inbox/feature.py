"""The inbox: what waits for a person with an agent."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from component.features.feature import Feature, Opened
from component.features.inbox.answers import Answers
from component.features.inbox.commands import InboxCommands
from component.features.inbox.node import InboxNode
from component.features.inbox.rows import forget
from component.features.inbox.skills import inbox_skill
from component.features.inbox.store import InboxStore
from component.features.inbox.view import InboxView
from component.kernel.kernel import Kernel
from component.skills import Skill

if TYPE_CHECKING:
    from xep.jid import JID


class InboxFeature(Feature):
    """Lists what waits for people, in chat, as a form, at a node and for models."""

    _kernel: Kernel
    _view: InboxView
    """Made by `open`: skills are called only while the service runs."""

    def skills(self) -> Iterable[Skill]:
        """Return the skill that reads the inbox."""

        async def zone_of(person: "JID") -> str:
            return await self._kernel.zones.of(person)

        return (inbox_skill(lambda: self._view, zone_of),)

    def open(self, kernel: Kernel) -> Opened:
        """Make the view, and what learns of its changes."""
        self._kernel, self._view = kernel, InboxView(kernel)
        store, node = InboxStore(kernel), InboxNode(kernel, self._view)
        store.changed = node.changed
        kernel.stream.messenger.listen(store.message_received)
        kernel.on_notifications.append(node.changed)
        words = kernel.tasks.questions
        answers = Answers(kernel.tasks.service, words)
        commands = InboxCommands(self._view, answers, words, store, kernel.zones)
        return Opened(
            nodes=(node,),
            commands=commands.commands(),
            loops=(store.run, node.run),
            forget=forget,
            task_changed=node.task_changed,
            task_deleted=node.task_deleted,
        )


FEATURE = InboxFeature
