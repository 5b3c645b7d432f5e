"""The answers of people to questions, in words and by selected actions."""

from component.features.feature import Feature, Opened
from component.features.questions.answers import ChatAnswers
from component.features.questions.dialogues import Dialogues
from component.kernel.kernel import Kernel


class QuestionsFeature(Feature):
    """Takes answers to the questions of tasks, and to those of dialogues."""

    def open(self, kernel: Kernel) -> Opened:
        """Make what takes answers."""
        answers = ChatAnswers(kernel.tasks.service, kernel.tasks.questions)
        if kernel.agents is None:
            return Opened(answers=(answers,))
        dialogue = kernel.agents.dialogue
        return Opened(answers=(Dialogues(answers, dialogue, kernel.stream.addresses.agent_at),))


FEATURE = QuestionsFeature
