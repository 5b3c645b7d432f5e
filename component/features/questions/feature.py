"""The answers of people to questions, in words and by selected actions."""

from component.features.feature import Feature, Opened
from component.features.questions.answers import ChatAnswers, Dialogues
from component.kernel.kernel import Kernel


class QuestionsFeature(Feature):
    """Takes answers to the questions of tasks, and to those of dialogues."""

    def open(self, kernel: Kernel) -> Opened:
        """Make what takes answers."""
        answers = ChatAnswers(kernel.tasks.service, kernel.tasks.questions)
        if kernel.agents is None:
            return Opened(message_stages=(answers.stage(),))
        agent_at = kernel.stream.addresses.agent_at
        dialogues = Dialogues(answers, kernel.agents.dialogue, agent_at)
        return Opened(message_stages=(dialogues.stage(),))


FEATURE = QuestionsFeature
