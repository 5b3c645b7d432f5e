"""Messages of people: answers to questions, commands, and messages to agents."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from component.commands.definition import Commands
from component.handlers.chat_answers import ChatAnswers
from component.handlers.dialogues import Dialogues
from component.handlers.exchange_limit import ExchangeLimit
from component.handlers.message import Answers, MessageHandler
from component.handlers.notices import Notices
from component.handlers.occupants import OccupantHandler
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import agent_at
from component.kernel.pubsub import PubSubSubsystem
from component.kernel.stream import Handler, StreamSubsystem
from component.kernel.tasks import TaskSubsystem
from component.storage.notices import NoticeStore
from xep.jid import JID

if TYPE_CHECKING:
    from component.kernel.agents import AgentSubsystem


class ChatSubsystem:
    """Passes the messages of people to tasks, commands and agents.

    Args:
        environment: the settings, and who has got the notice that an agent is a machine.
        stream: sends messages.
        contacts: who is a person.
        tasks: the tasks whose questions people answer.
        agents: answer messages; None if no model is configured.
        commands: the commands that begin with a slash.
        pubsub: handles the answers of owners to requests for subscriptions.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        tasks: TaskSubsystem,
        agents: "AgentSubsystem | None",
        commands: Commands,
        pubsub: PubSubSubsystem,
    ) -> None:
        self._environment = environment
        self._stream = stream
        self._contacts = contacts
        self._occupants = OccupantHandler(
            stream.messenger,
            environment.catalog.policy.admits,
            stream.is_room,
        )
        self._message = MessageHandler(
            environment.settings.agent.name,
            stream.messenger,
            commands,
            answers=self._answers(tasks, agents),
            agents=None if agents is None else agents.conversations,
            agent_at=stream.addresses.agent_at,
            let_in=tasks.pause_gate.check,
            notices=self._notices(),
            forms=pubsub.handler.authorized,
            is_own=stream.addresses.is_own,
            limit=ExchangeLimit(environment.settings.limits.messages_per_sender),
        )

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of messages."""
        return (self._message, self._occupants)

    def _answers(self, tasks: TaskSubsystem, agents: "AgentSubsystem | None") -> Answers:
        questions = ChatAnswers(tasks.service, tasks.questions)
        if agents is None:
            return questions
        return Dialogues(questions, agents.dialogue, self._stream.addresses.agent_at)

    def _notices(self) -> Notices | None:
        template = self._environment.settings.agent.notice
        if not template:
            return None
        profiles = self._environment.catalog.profiles

        def text(agent: JID) -> str:
            return profiles[agent.local].filled(template)

        return Notices(
            NoticeStore(self._environment.storage),
            self._contacts.persons,
            agent_at(self._environment.settings),
            text,
            self._stream.handled,
        )
