"""Questions on the terminal, and how a command ends that a person interrupts at one.

A question shows its default, and each answer is checked when it is entered: what is wrong is said,
and the question asked again. Without a terminal the answers are lines of standard input, and a
wrong one ends the command, because the next line answers the next question.

The line is read in the main thread. A thread that waits for the terminal cannot be ended: Python
would abort at exit, and the thread take the next line away from the shell.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import click

from component.cli import frame
from component.cli.frame import ExitCode, Fault

T = TypeVar("T")


class InputEnded(Fault):
    """The input ended (Ctrl-D on a terminal) before an answer."""


@dataclass(frozen=True)
class Prompt(Generic[T]):
    """A question that one line answers.

    `read` converts the line, and raises ValueError with the reason, an unfinished sentence, if it
    is not an answer. An empty line stands for `default`, if there is one.
    """

    label: str
    read: Callable[[str], T]
    default: str | None = None

    def ask(self) -> T:
        """Ask until there is an answer. Raises InputEnded, and Fault without a terminal."""
        while True:
            self._show()
            try:
                return self._take()
            except ValueError as error:
                self._explain(error)

    async def ask_in_loop(self) -> T:
        """Do the same in an event loop, which goes on meanwhile."""
        import anyio  # noqa: PLC0415 - --help needs none of it

        while True:
            self._show()
            try:
                if sys.stdin.isatty():
                    await anyio.wait_readable(sys.stdin)  # a terminal passes on whole lines
                return self._take()
            except ValueError as error:
                self._explain(error)

    def _show(self) -> None:
        default = "" if self.default is None else f" [{self.default}]"
        click.echo(f"{self.label}{default}: ", nl=False, err=True)

    def _take(self) -> T:
        line = sys.stdin.buffer.readline()
        if not sys.stdin.isatty() or not line:  # a terminal shows the end of the line itself
            click.echo(err=True)
        if not line:
            question = self.label.splitlines()[-1]
            raise InputEnded(f"The input ended without an answer to: {question}.")
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise ValueError("expected text in UTF-8") from None
        return self.read(text if text or self.default is None else self.default)

    def _explain(self, error: ValueError) -> None:
        reason = str(error)
        sentence = f"{reason[:1].upper()}{reason[1:]}".rstrip(".") + "."
        if not frame.interactive():
            raise Fault(f"{self.label}: {sentence}") from None
        click.echo(sentence, err=True)


def one_of(*choices: str) -> Callable[[str], str]:
    """Return what reads one of these words."""

    def read(text: str) -> str:
        if text.strip() not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return text.strip()

    return read


def confirm_or_exit(question: str) -> None:
    """Ask on the terminal, and end the command unless the answer is yes."""
    if not Prompt(f"{question} [y/N]", _is_yes).ask():
        click.echo("Cancelled: nothing was changed.", err=True)
        raise click.exceptions.Exit(ExitCode.FAILURE)


def _is_yes(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("y", "yes", "n", "no", ""):
        raise ValueError("expected yes or no")
    return word in ("y", "yes")
