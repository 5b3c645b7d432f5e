"""`xmpp-agent audit`: searches and verifies the audit log, whether or not the service runs."""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from component.cli import frame

if TYPE_CHECKING:
    from component.audit.lines import ChainLink, Line
    from component.audit.verify import Verification
    from component.config import Settings

_BAD = frozenset(("refused", "failed", "denied", "broken", "lost", "stopped"))
_WARNING = frozenset(("asked", "expired", "repaired", "cancelled"))
_KINDS = (
    *("start", "policy", "capability", "execute", "tool-call", "confirmation", "memory", "model"),
    *("budget", "agent", "admin", "taint", "injection", "record"),
)
_FILTERS: tuple[tuple[str, str, str], ...] = (
    ("--principal", "JID", "Only entries about this bare JID."),
    ("--agent", "NAME", "Only entries about this agent."),
    ("--outcome", "WORD", "Only entries with this outcome, such as refused."),
    ("--subject", "NAME", "Only entries about this skill, memory key or model."),
    ("--trace", "ID", "Only entries of this turn or task."),
    ("--task", "ID", "Only entries about this task."),
)


@click.group()
def audit() -> None:
    """Search the audit log, and verify that it is complete and unchanged.

    These commands read the log files in the data directory, whether or not the service is running.
    """


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, metavar, about in reversed(_FILTERS):
        function = click.option(name, metavar=metavar, help=about)(function)
    kinds = click.option("--kind", type=click.Choice(_KINDS), help="Only entries of this kind.")
    return kinds(function)


@audit.command(short_help="Verify that the log is complete and unchanged.")
@frame.config_option
@frame.json_option()
@click.option(
    "--known",
    metavar="NUMBER:HASH",
    multiple=True,
    help="Number and hash of an entry that must be in the log, as printed by an earlier verify.",
)
@click.option(
    "--after",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    default=0,
    help="Ignore problems up to this entry, because they are known.",
)
@click.option(
    "--files-only", is_flag=True, help="Do not read the number of the last entry from the database."
)
def verify(
    config: Path, as_json: bool, known: tuple[str, ...], after: int, files_only: bool
) -> None:
    """Verify that no entry was changed, removed, moved or inserted.

    Each problem is listed with its file and entry number, and the exit code is 1. The last entry
    that must exist is known from the database and from --known.

    \b
    Examples:
      xmpp-agent audit verify
      xmpp-agent audit verify --known 4711:9f86d0…
      xmpp-agent audit verify --json | jq .findings
    """
    from component.audit.verify import verify_beside  # noqa: PLC0415 - --help needs none of it

    settings = frame.load_settings(config)
    links = [_link(text) for text in known]
    directory = _directory(settings)
    if not files_only:
        links += _from_database(settings, directory)
    try:
        verdict = verify_beside(directory, links, after)
    except OSError as error:
        raise _unreadable(directory, error) from None
    if as_json:
        import msgspec  # noqa: PLC0415

        frame.print_json({"whole": verdict.whole, **msgspec.to_builtins(verdict)})
    else:
        _show_verdict(verdict, directory)
    if not verdict.whole:
        raise click.exceptions.Exit(frame.ExitCode.FAILURE)


@audit.command()
@frame.config_option
@frame.json_option("Print JSON, one object per line.")
@_filters
@click.option(
    "-n",
    "--lines",
    metavar="N",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Number of entries to show.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for new entries and show them.")
def tail(config: Path, as_json: bool, lines: int, follow: bool, **filters: str | None) -> None:
    """Show the latest entries.

    \b
    Examples:
      xmpp-agent audit tail
      xmpp-agent audit tail -f --outcome refused
      xmpp-agent audit tail -n 100 --principal juliet@example.com
    """
    from component.audit.query import AuditQuery, latest  # noqa: PLC0415
    from component.audit.query import follow as followed  # noqa: PLC0415

    directory = _directory(frame.load_settings(config))
    query = AuditQuery(**filters)

    def found() -> "Iterable[Line]":
        yield from reversed(list(itertools.islice(latest(directory, query), lines)))
        if follow:
            yield from followed(directory, query)

    _print(found(), directory, as_json=as_json)


@audit.command()
@frame.config_option
@frame.json_option("Print JSON, one object per line.")
@_filters
@click.option(
    "--since",
    metavar="TIME",
    help="Only entries since this time, such as"
    " 2026-03-01T12:00:00Z, or 30m or 7d for so long ago.",
)
@click.option("--until", metavar="TIME", help="Only entries before this time.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Maximum number of entries.")
@click.option("--newest-first", is_flag=True, help="Show the latest entry first.")
def query(
    config: Path,
    as_json: bool,
    since: str | None,
    until: str | None,
    limit: int | None,
    newest_first: bool,
    **filters: str | None,
) -> None:
    """Find the entries that match all options.

    \b
    Examples:
      xmpp-agent audit query --principal juliet@example.com --since 24h
      xmpp-agent audit query --kind confirmation --outcome denied --newest-first --limit 5
      xmpp-agent audit query --kind execute --json | jq -r .subject | sort | uniq -c
    """
    from component.audit.query import AuditQuery, earliest, latest  # noqa: PLC0415

    wanted = AuditQuery(**filters, since=_time("since", since), until=_time("until", until))
    directory = _directory(frame.load_settings(config))
    find = latest if newest_first else earliest
    if not _print(itertools.islice(find(directory, wanted), limit), directory, as_json=as_json):
        # On stderr, so that a program that counts lines counts none.
        click.echo("No entry matches.", err=True)


@audit.command(short_help="Show what became of delegated work, and what it has cost.")
@frame.config_option
@frame.json_option()
@click.argument("wanted", metavar="ID")
def trace(config: Path, as_json: bool, wanted: str) -> None:
    """Show what other agents have done for a task, and what they have done for each other.

    ID is that of a task, or the trace that all agents of the path share: their own audit logs have
    entries with it (audit query --trace ID). What an agent has signed is marked; what it says about
    agents further on is its word.

    \b
    Examples:
      xmpp-agent audit trace 9f86d081884c7d659a2feaa0c55ad015
      xmpp-agent audit trace 4bf92f3577b34da6a3ce929d0e0e4736 --json
    """
    from functools import partial  # noqa: PLC0415 - --help needs none of it

    import msgspec  # noqa: PLC0415

    from component.audit.query import AuditQuery, earliest  # noqa: PLC0415
    from component.features.peers.trace import answered_at_once, find_work, tree  # noqa: PLC0415
    from component.kernel.options import addresses  # noqa: PLC0415
    from component.store import StorageError  # noqa: PLC0415
    from component.store.storage import peek  # noqa: PLC0415

    settings = frame.load_settings(config)
    where, directory = settings.storage, _directory(settings)
    address_of = addresses(settings).address_of
    try:
        found = peek(
            where.path, where.postgres.get_secret_value(), partial(find_work, wanted=wanted)
        )
        found = found or []
        lines = earliest(directory, AuditQuery(trace=wanted))
        found = [*found, *answered_at_once(lines, found, lambda name: str(address_of(name)))]
    except StorageError as error:
        raise frame.Fault(f"{error}") from None
    except OSError as error:
        raise _unreadable(directory, error) from None
    if as_json:
        frame.print_json(msgspec.to_builtins(found))
    elif not found:
        raise frame.Fault(f"There is no task and no trace {_shown(wanted[:80])!r} here.")
    else:
        for line in [line for work in found for line in tree(work)]:
            click.echo(_shown(line))


def _directory(settings: "Settings") -> Path:
    from component.audit.files import DIRECTORY  # noqa: PLC0415

    return settings.storage.path / DIRECTORY


def _link(text: str) -> "ChainLink":
    from component.audit.lines import ChainLink  # noqa: PLC0415

    number, _, digest = text.partition(":")
    is_hash = len(digest) == 64 and all(char in "0123456789abcdef" for char in digest)
    if not (number.isascii() and number.isdecimal() and is_hash):
        raise click.UsageError(
            f"--known {text!r} is not valid: give the number and the hash of an entry, such as"
            " 12:9f86d0… (64 hexadecimal digits)."
        )
    return ChainLink(int(number), digest)


_FILES_ONLY: Final = (
    "The number of the last entry is stored there. With --files-only, only the files are"
    " verified; missing entries at the end of the log are then not detected."
)


def _from_database(settings: "Settings", directory: Path) -> "list[ChainLink]":
    from component.audit.files import files_in  # noqa: PLC0415
    from component.audit.heads import heads_in, own_head  # noqa: PLC0415
    from component.audit.opening import read_chain  # noqa: PLC0415
    from component.store import StorageError  # noqa: PLC0415
    from component.store.storage import peek  # noqa: PLC0415

    try:
        where = settings.storage
        found = peek(where.path, where.postgres.get_secret_value(), heads_in)
        head = None if found is None else own_head(found, read_chain(directory), directory)
        there = bool(files_in(directory))
    except StorageError as error:
        raise frame.Fault(f"{error}", _FILES_ONLY) from None
    except OSError as error:
        raise _unreadable(directory, error) from None
    if head is None and there:
        raise frame.Fault(
            f"There is an audit log in {directory}, but the database has no entry for it, or the"
            " database is missing.",
            _FILES_ONLY,
        )
    return [] if head is None else [head.link]


def _unreadable(directory: Path, error: OSError) -> frame.Fault:
    return frame.Fault(
        f"The audit log in {directory} cannot be read: {error.strerror or error}. Run this"
        " command as the user that runs the service."
    )


def _time(name: str, text: str | None) -> str | None:
    from component.audit.query import parse_moment  # noqa: PLC0415

    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError as error:
        raise click.UsageError(f"--{name}: {error}") from None


def _print(lines: "Iterable[Line]", directory: Path, *, as_json: bool) -> int:
    """Print lines as they arrive; return their number."""
    import msgspec  # noqa: PLC0415

    printed = 0
    try:
        for line in lines:
            printed += 1
            if as_json:
                line.prev = ""  # omitted in this case
                click.echo(msgspec.json.encode(line).decode())
            else:
                click.echo(_line_text(line))
    except KeyboardInterrupt:
        pass  # the end of following
    except BrokenPipeError:
        raise  # click exits quietly when the reader has closed the pipe
    except OSError as error:
        raise _unreadable(directory, error) from None
    return printed


def _line_text(line: "Line") -> str:
    colour = "red" if line.outcome in _BAD else "yellow" if line.outcome in _WARNING else "green"
    parts = [
        click.style(f"{line.time[:23].replace('T', ' ')}", dim=True),
        click.style(_shown(line.kind), bold=True),
        click.style(_shown(line.outcome), fg=colour),
        *(_shown(each) for each in (line.principal, line.agent, line.subject) if each),
    ]
    if line.task:
        parts.append(f"task {_shown(line.task)}")
    if line.trace and line.trace != line.task:
        parts.append(f"trace {_shown(line.trace)}")
    if line.detail:
        parts.append(click.style(f"({_shown(line.detail)})", dim=True))
    return " ".join(parts)


def _shown(text: str) -> str:
    # Control characters come from strangers, so they are shown instead of sent to the terminal.
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _show_verdict(verdict: "Verification", directory: Path) -> None:
    for note in verdict.notes:
        click.echo(note)
    if verdict.whole and not verdict.lines:
        click.echo(f"There is no audit log in {directory} yet.")
    elif verdict.whole:
        files = "1 file" if verdict.files == 1 else f"{verdict.files} files"
        click.echo(
            f"{click.style('The audit log is complete and unchanged', fg='green')}:"
            f" {verdict.lines} entries in"
            f" {files}, from {verdict.since} to {verdict.until}."
        )
        click.echo(f"The last one is {verdict.last}:{verdict.hash}")
    else:
        mark = click.style("wrong:", fg="red", bold=True)
        for each in verdict.findings:
            click.echo(f"{mark} {_shown(each.sentence)}", err=True)
        click.echo(
            f"The audit log in {directory} is incomplete or was changed. Keep the files"
            " unchanged, and compare them with a backup or with entries that were sent elsewhere."
            " To ignore the problems that you know:"
            f" --after {verdict.findings[-1].seq}.",
            err=True,
        )
