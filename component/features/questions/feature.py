"""The answers of people to questions, in words, by selected actions and by votes in rooms."""

from collections.abc import Sequence

from component.features.feature import Feature, Opened
from component.features.questions.answers import ChatAnswers, Dialogues
from component.features.questions.room_questions import RoomQuestions
from component.features.questions.room_votes import RoomVotes
from component.kernel.kernel import Kernel
from component.link.messages.inbound import MessageStage


class QuestionsFeature(Feature):
    """Takes answers to the questions of tasks, and to those of dialogues.

    Attributes:
        room_votes: takes the votes in rooms, once it is open.
    """

    reloads = ("policy.rules",)
    room_votes: RoomVotes

    def open(self, kernel: Kernel) -> Opened:
        """Make what takes answers."""
        questions = RoomQuestions(kernel)
        self.room_votes = RoomVotes(kernel, questions)
        return Opened(
            message_stages=self._stages(kernel),
            loops=(self.room_votes.run, questions.run),
            task_changed=questions.task_changed,
        )

    def _stages(self, kernel: Kernel) -> Sequence[MessageStage]:
        answers = ChatAnswers(kernel.tasks.service, kernel.tasks.questions)
        if kernel.agents is None:
            return (answers.stage(),)
        agent_at = kernel.stream.addresses.agent_at
        return (Dialogues(answers, kernel.agents.dialogue, agent_at).stage(),)


FEATURE = QuestionsFeature
