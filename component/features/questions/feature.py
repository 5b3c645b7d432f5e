"""The answers of people to questions, in words, by selected actions and by votes in rooms."""

from collections.abc import Sequence
from typing import ClassVar

from component.features.feature import Feature, Opened
from component.features.questions.answers import ChatAnswers, Dialogues
from component.features.questions.room_questions import RoomQuestions
from component.features.questions.room_votes import RoomVotes
from component.kernel.kernel import Kernel
from component.link.messages.inbound import MessageStage


class QuestionsFeature(Feature):
    """Takes answers to the questions of tasks, and to those of dialogues."""

    reloads: ClassVar = ("policy.rules",)

    def open(self, kernel: Kernel) -> Opened:
        """Make what takes answers."""
        questions = RoomQuestions(kernel)
        votes = RoomVotes(kernel, questions)
        return Opened(
            message_stages=self._stages(kernel),
            loops=(votes.run, questions.run),
            is_vote=votes.is_vote,
            task_changed=questions.task_changed,
        )

    def _stages(self, kernel: Kernel) -> Sequence[MessageStage]:
        answers = ChatAnswers(kernel.tasks.service, kernel.tasks.questions)
        if kernel.agents is None:
            return (answers.stage(),)
        agent_at = kernel.stream.addresses.agent_at
        return (Dialogues(answers, kernel.agents.dialogue, agent_at).stage(),)


FEATURE = QuestionsFeature
