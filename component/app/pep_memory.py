"""The memories of people on PubSub nodes, synchronised with the files."""

import math
import secrets
from collections.abc import Sequence
from typing import Final

import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from component.app.account_home import AccountHome
from component.commands.definition import AnyCommand
from component.commands.memory_home import MemoryHomeCommands
from component.handlers.privileges import PrivilegeHandler
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import agent_entries
from component.kernel.pubsub_events import EventListener
from component.kernel.stream import Handler, StreamSubsystem
from component.memory.file_store import PrivateFiles
from component.memory.replica import Replica, ReplicaOptions
from component.memory.store import Whose
from component.memory.sync_state import SyncStates
from component.messages.inbound import ReplyAddress
from component.messages.outbound import OutboundMessage, Text, conversation_with
from component.pep_memory.agent_nodes import AgentNodes
from component.pep_memory.encryption import Cipher
from component.pep_memory.nodes import MemoryNodes
from component.pep_memory.store import PepStore
from component.pubsub.service import PubSubService
from xep.fluux_agent.memory import NAMESPACE

_ID_BYTES: Final = 16
_PATIENCE_S: Final = 1.0
_OWN_PATIENCE_S: Final = 10.0

_log = structlog.get_logger("component.app")


class MemorySubsystem:
    """Synchronises the memories of people with their nodes, if the settings say so.

    Args:
        environment: the settings and the memories.
        stream: sends requests to the services of other addresses.
        contacts: who may be written to.
        pubsub: our own PubSub service.

    Attributes:
        features: the features that disco#info announces.

    Raises KeyRefusedError: the keys of the encryption cannot be used.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        pubsub: PubSubService,
    ) -> None:
        self._environment = environment
        self._stream = stream
        self._contacts = contacts
        self._pubsub = pubsub
        self._home: AccountHome | None = None
        self._replica = self._make_replica()
        self.features: Sequence[str] = () if self._replica is None else (NAMESPACE,)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Synchronise nodes and files until cancelled."""
        if self._replica is None:
            task_status.started()
        else:
            await self._replica.run(task_status=task_status)

    def handlers(self) -> Sequence[Handler]:
        """The handler of what servers permit."""
        return () if self._home is None else (PrivilegeHandler(self._home.privileges),)

    def listeners(self) -> Sequence[EventListener]:
        """What follows the notifications of accounts."""
        return () if self._home is None else (self._home.nodes,)

    def commands(self) -> Sequence[AnyCommand]:
        """The command by which people consent, where they can."""
        if self._home is None or not self._home.is_consent_possible:
            return ()
        default_agent = agent_entries(self._environment.settings)[0].name
        return MemoryHomeCommands(self._home, default_agent).commands()

    def connected(self) -> None:
        """Continue with nodes elsewhere, now that there is a session. Never waits."""
        if self._replica is not None:
            self._replica.connected()

    def disconnected(self) -> None:
        """The session is over. Never waits."""
        if self._home is not None:
            self._home.disconnected()

    def _make_replica(self) -> Replica | None:
        environment = self._environment
        settings, memories = environment.settings.memory, environment.memories
        if settings.store == "files":
            return None
        keys = tuple(key.get_secret_value() for key in settings.encryption_keys)
        nodes = self._nodes()
        is_own = isinstance(nodes, AgentNodes)
        shares_database = bool(environment.settings.storage.postgres.get_secret_value())
        replica = Replica(
            PrivateFiles(memories.knowledge.files, memories.sharing),
            PepStore(nodes, self._stream.addresses.address_of, Cipher(keys) if keys else None),
            SyncStates(memories.layout),
            ReplicaOptions(
                edits_of_files=settings.store == "both",
                patience_s=_OWN_PATIENCE_S if is_own else _PATIENCE_S,
                # What other instances publish is not announced here.
                fresh_s=0.0 if shares_database else math.inf,
                reconcile_s=settings.reconcile_s,
            ),
            environment.monitoring.recorder,
            self._tell,
        )
        memories.knowledge.mirror = replica
        if self._home is not None:
            self._home.available = replica.available
            self._home.privileges.changed = replica.connected
        return replica

    def _nodes(self) -> MemoryNodes:
        settings = self._environment.settings
        if settings.memory.home == "agent" and settings.server.mode == "component":
            agents = [entry.name for entry in agent_entries(settings)]
            return AgentNodes(self._pubsub, self._stream.addresses, agents, settings.memory)
        self._home = AccountHome(self._environment, self._stream)
        return self._home.nodes

    def _tell(self, whose: Whose, sentence: str) -> None:
        ours = self._stream.addresses.address_of(whose.agent)
        if not self._contacts.may_write(ours, whose.who):
            return
        self._stream.messenger.send(
            OutboundMessage(
                id=secrets.token_hex(_ID_BYTES),
                conversation=conversation_with(ours, whose.who),
                to=ReplyAddress(str(whose.who), ours, "chat"),
                parts=(Text(sentence),),
                must_arrive=True,
            )
        )
