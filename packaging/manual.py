"""Writes the man pages and the completions of bash and zsh, all made from the commands themselves.

Usage: python packaging/manual.py DIRECTORY, in which it makes `man1`, `bash` and `zsh`.
"""

import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from component import VERSION
from component.cli.group import group
from conformance.cli import command as conformance

PROGRAMS = {"xmpp-agent": group, "xmpp-agent-conformance": conformance}


def pages(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the page of a program, and one for each of its commands."""
    context = click.Context(command, info_name=name, **command.context_settings)
    yield name, page(context)
    for below in commands(context):
        yield f"{name}-{below.info_name}", page(below)


def commands(context: click.Context) -> list[click.Context]:
    """Return a context for each command of a group."""
    if not isinstance(context.command, click.Group):
        return []
    names = context.command.list_commands(context)
    found = [(name, context.command.get_command(context, name)) for name in names]
    return [
        click.Context(each, context, info_name=name, **each.context_settings)
        for name, each in found
        if each
    ]


def page(context: click.Context) -> str:
    """Return the page of a command, and of the commands of a group below the first level."""
    name = context.command_path.replace(" ", "-")
    lines = [
        f'.TH {name.upper()} 1 "" "xmpp-agent {VERSION}" "xmpp-agent"',
        ".SH NAME",
        rf"{escape(name)} \- {escape(context.command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {escape(context.command_path)}",
        escape(" ".join(context.command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *texts(context.command.help),
        ".SH OPTIONS",
        *options(context),
    ]
    if below := commands(context):
        lines.append(".SH COMMANDS")
        for each in below:
            if context.parent is None:
                short = escape(each.command.get_short_help_str(200))
                lines += [".TP", rf"\fB{escape(name)}\-{escape(each.info_name or '')}\fR(1)", short]
            else:
                usage = " ".join(each.command.collect_usage_pieces(each))
                lines += [f".SS {escape(each.command_path)} {escape(usage)}"]
                lines += [*texts(each.command.help), *options(each)]
    lines += texts(context.command.epilog)
    if context.parent is not None:
        lines += [".SH SEE ALSO", rf".BR {escape(context.parent.command_path)} (1)"]
    return "\n".join(lines) + "\n"


def texts(help_text: str | None) -> Iterator[str]:
    """Yield the paragraphs of a help text; click prints those after a `\\b` as they are."""
    for paragraph in inspect.cleandoc(help_text or "").split("\n\n"):
        verbatim = paragraph.startswith("\b")
        body = paragraph.removeprefix("\b").strip("\n")
        if not body:
            continue
        yield ".PP"
        if verbatim:
            yield from (".nf", *map(escape, body.split("\n")), ".fi")
        else:
            yield escape(" ".join(body.split()))


def options(context: click.Context) -> Iterator[str]:
    """Yield the options of a command as a list."""
    records = (each.get_help_record(context) for each in context.command.get_params(context))
    for term, described in filter(None, records):
        yield from (".TP", rf"\fB{escape(term)}\fR", escape(" ".join(described.split())) or r"\&")


def escape(text: str) -> str:
    """Return a line of text for roff."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def write(target: Path) -> None:
    """Write all files."""
    for directory in ("man1", "bash", "zsh"):
        (target / directory).mkdir(parents=True, exist_ok=True)
    for program, command in PROGRAMS.items():
        for name, text in pages(program, command):
            (target / "man1" / f"{name}.1").write_text(text, encoding="utf-8")
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        for shell, name in (("bash", program), ("zsh", f"_{program}")):
            made = get_completion_class(shell)
            assert made is not None, "click knows this shell"
            source = made.source_template % made(command, {}, program, variable).source_vars()
            (target / shell / name).write_text(source, encoding="utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    write(Path(sys.argv[1]))
