"""What can go wrong between the rows and those who work with them."""


class LostError(Exception):
    """The task is no longer this run's: its lease was taken over, or the task has ended.

    Whoever gets it stops and says nothing to anybody.
    """


class TransitionError(Exception):
    """A change that the table of states does not allow: a mistake in this program."""
