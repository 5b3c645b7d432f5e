"""Shared parts of the commands: finding commands without importing them, --config, errors, and exit
codes.
"""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import click

from component.journal import is_journal

if TYPE_CHECKING:
    from component.app.process import StartError
    from component.config import Settings


class ExitCode(IntEnum):
    """The exit codes; 78 is EX_CONFIG of sysexits.h, the others are what shells expect."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 78
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """A phrase for help and documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILURE: "the command failed; stderr says why",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.CONFIG: "the configuration is missing or wrong; stderr names the keys",
    ExitCode.INTERRUPTED: "it was interrupted by Ctrl-C",
}


P = ParamSpec("P")
R = TypeVar("R")


class Lazy(NamedTuple):
    """The location of a command, `module:attribute`, and its line in the list of commands."""

    target: str
    help: str

    @property
    def exists(self) -> bool:
        """Return whether the module is installed, without running it."""
        return importlib.util.find_spec(self.target.partition(":")[0]) is not None

    def command(self) -> click.Command:
        """Import the module and return the command."""
        found = load_attribute(self.target)
        command = found if isinstance(found, click.Command) else found.command()
        assert isinstance(command, click.Command), f"{self.target} is not a click command"
        return command


def load_attribute(target: str) -> Any:
    """Import what is at `module:attribute`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


class LazyGroup(click.Group):
    """A group that imports a command only when it is run or its own help is asked for."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], **kwargs: Any) -> None:
        """Create the group with the table of commands."""
        super().__init__(*args, **kwargs)
        self._lazy = {name: entry for name, entry in lazy.items() if entry.exists}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; return None if there is none of that name."""
        entry = self._lazy.get(cmd_name)
        return entry.command() if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table."""
        if self._lazy:
            with formatter.section("Commands"):
                formatter.write_dl([(name, entry.help) for name, entry in self._lazy.items()])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Turn colours off under NO_COLOR; click itself turns them off in a pipe."""
        if os.environ.get("NO_COLOR"):
            extra.setdefault("color", False)
        return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it with a line and exit code 130. Raises Interrupted."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            pass
        except BaseExceptionGroup as group:  # of an event loop; other errors in it are consequences
            if group.subgroup(KeyboardInterrupt) is None:
                raise
        raise Interrupted


class Fault(click.ClickException):
    """Ends the command with sentences on stderr, a line each, and exit code 1."""

    exit_code = ExitCode.FAILURE

    def __init__(self, *sentences: str) -> None:
        """Create the error from the sentences."""
        super().__init__("\n".join(sentences))
        self.sentences = sentences

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentences, each with a mark that is red on a terminal; in the journal of
        systemd they have the priority of errors.
        """
        mark = click.style("error:", fg="red", bold=True)
        if is_journal(sys.stderr):
            mark = f"<3>{mark}"
        color = False if os.environ.get("NO_COLOR") else self.show_color
        for sentence in self.sentences:
            click.echo(f"{mark} {sentence}", file=file, err=True, color=color)


class Interrupted(click.ClickException):
    """Ends the command with one line on stderr and the exit code of a shell for SIGINT."""

    exit_code = ExitCode.INTERRUPTED

    def __init__(self) -> None:
        """Create the error."""
        super().__init__("Interrupted.")

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line, below the `^C` that terminals show."""
        click.echo(f"\n{self.message}", file=file, err=True)


class ConfigFault(Fault):
    """The same for a configuration that cannot be used, with exit code 78."""

    exit_code = ExitCode.CONFIG


def fault_of(error: "StartError") -> Fault:
    """Return the fault of a service that cannot run."""
    return (ConfigFault if error.in_config else Fault)(*error.sentences)


def config_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--config FILE` to a command, which gets it as `config: Path`."""
    option = click.option(
        "--config",
        "-c",
        type=click.Path(path_type=Path),
        default=Path("agent.toml"),
        show_default=True,
        envvar="XMPP_AGENT_CONFIG",
        show_envvar=True,
        help="The configuration file.",
    )
    return option(function)


def json_option(about: str = "Print JSON.") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add `--json` to a command, which gets it as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help=about)


def print_json(value: Any) -> None:
    """Print a value as JSON for people and programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def interactive() -> bool:
    """Return whether there is a terminal to ask on."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def load_settings(path: Path) -> "Settings":
    """Return the settings of the file, or end the command with ConfigFault."""
    # Imported here, because --help and --version need no pydantic.
    from component.app.features import load  # noqa: PLC0415
    from component.config import SettingsError  # noqa: PLC0415

    try:
        return load(path)
    except SettingsError as error:
        raise ConfigFault(*map(str, error.problems)) from None
