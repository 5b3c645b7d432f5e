"""Commands of the service on the command line, made from their outlines.

With the service running they go through its control socket. Without it the storage is opened here,
and what needs no running service is done.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component.cli.exit_codes import ExitCode
from component.cli.frame import ConfigFault, Fault, config_option, interactive, load_settings
from component.commands.definition import AnyOutline, CommandError
from component.control.messages import ControlAnswer, ControlRequest

if TYPE_CHECKING:
    from component.audit.protocol import Recorder
    from component.commands.admin import Vitals
    from component.commands.definition import Commands
    from component.settings import Settings
    from component.storage import Storage


def command_of(
    outline: AnyOutline,
    name: str,
    examples: str,
    hidden: Collection[str] = (),
    asks: str | None = None,
) -> click.Command:
    """The command `name` of the command line for a command of the service.

    Parameters that are required are arguments, the others options; those that are `hidden` are
    left out. `examples` are command lines, one a line. `asks` is for what cannot be taken back: it
    is said and asked on a terminal before that is done, with the parameters in `{}`.
    """
    about = outline.about[:1].upper() + outline.about[1:]
    lines = "".join(f"\n  {line}" for line in examples.splitlines())

    def perform(config: Path, as_json: bool, yes: bool = False, **given: Any) -> None:
        texts = [(key, _text(value)) for key, value in given.items() if value not in (None, False)]
        try:
            params = outline.read(texts)
        except CommandError as error:
            raise click.UsageError(str(error)) from None
        if asks is not None and not yes:
            _ask_first(asks.format_map(given))
        _show(_ask(config, outline.name, params), as_json=as_json)

    made = click.Command(
        name,
        callback=perform,
        params=[_param(*each, outline.schema) for each in _visible(outline, hidden)],
        help=f"{about}.\n\n\b\nExamples:{lines}",
    )
    json_option = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON.")
    made.params.append(json_option)
    if asks is not None:
        made.params.append(click.Option(["--yes", "-y"], is_flag=True, help="Do not ask first."))
    _add_config(made)
    return made


def _ask_first(question: str) -> None:
    """Go on if a person says yes. A script never waits for one: it has to have said so."""
    if not interactive():
        raise click.UsageError(
            "This cannot be taken back, and there is no terminal on which to ask: add --yes."
        )
    if not click.confirm(question, err=True):
        click.echo("Nothing was done.", err=True)
        raise click.exceptions.Exit(ExitCode.FAILURE)


def _visible(outline: AnyOutline, hidden: Collection[str]) -> list[tuple[str, dict[str, Any]]]:
    schemas: Mapping[str, dict[str, Any]] = outline.schema["properties"]
    return [(key, schema) for key, schema in schemas.items() if key not in hidden]


def _add_config(command: click.Command) -> None:
    @config_option
    def configured() -> None: ...

    command.params += configured.__click_params__  # type: ignore[attr-defined]


def _param(name: str, schema: dict[str, Any], whole: dict[str, Any]) -> click.Parameter:
    kinds = [schema, *schema.get("anyOf", ())]
    if name in whole["required"]:
        return click.Argument([name], metavar=name.upper())
    described = str(schema.get("description", ""))
    default = schema.get("default")
    if any(kind.get("type") == "boolean" for kind in kinds):
        return click.Option([f"--{name}"], is_flag=True, help=described)
    if default not in (None, ""):
        described = f"{described}  [default: {default}]"
    choices = [value for kind in kinds for value in kind.get("enum", ()) if value is not None]
    metavar = "N" if any(kind.get("type") == "integer" for kind in kinds) else None
    return click.Option(
        [f"--{name}"],
        type=click.Choice(choices) if choices else click.STRING,
        metavar=metavar,
        help=described,
    )


def _text(value: Any) -> str:
    return "true" if value is True else str(value)


def _ask(config: Path, name: str, params: Any) -> ControlAnswer:
    """What the service answers, or the storage without it. Raises Fault."""
    import msgspec  # noqa: PLC0415 - --help needs none of it

    from component.control.client import ask  # noqa: PLC0415
    from component.control.path import ControlError  # noqa: PLC0415

    settings = load_settings(config)
    request = ControlRequest(name, msgspec.Raw(msgspec.json.encode(params)))
    try:
        answer = ask(settings.storage.path, request)
    except ControlError as error:
        raise Fault(str(error)) from None
    if answer is None:
        answer = _without_service(settings, request)
        if answer.unknown:
            raise Fault(
                f"The service does not run on {settings.storage.path}, and there is nothing to"
                f" {name} without it. `xmpp-agent run` starts it."
            )
    if answer.error is not None:
        raise Fault(answer.error)
    return answer


def _without_service(settings: "Settings", request: ControlRequest) -> ControlAnswer:
    import anyio  # noqa: PLC0415

    from component.control.server import run  # noqa: PLC0415
    from component.service.watching import watching  # noqa: PLC0415
    from component.skills import DuplicateSkillError, SkillLoadError  # noqa: PLC0415
    from component.storage import Storage, StorageError  # noqa: PLC0415

    path, postgres = settings.storage.path, settings.storage.postgres.get_secret_value()
    if not postgres and not (path / "agent.db").exists():
        raise Fault(
            f"There is no database in {path}: no service has run there yet. A relative path in"
            " [storage] counts from the directory in which this is run."
        )

    async def performed() -> ControlAnswer:
        async with (
            Storage.open(path, postgres=postgres) as storage,
            watching(settings, storage) as watches,
        ):
            return await run(await _commands(settings, storage, watches.recorder), request)

    try:
        return anyio.run(performed, backend=settings.backend)
    except StorageError as error:
        raise Fault(str(error)) from None
    except (SkillLoadError, DuplicateSkillError) as error:
        raise ConfigFault(str(error)) from None


async def _commands(settings: "Settings", storage: "Storage", recorder: "Recorder") -> "Commands":
    """What can be done without a running service."""
    from component.agent.registry import Agents  # noqa: PLC0415
    from component.budget.book import BudgetBook  # noqa: PLC0415
    from component.commands.admin import AdminCommands  # noqa: PLC0415
    from component.commands.agents import AgentCommands, SpendingCommands  # noqa: PLC0415
    from component.commands.definition import Commands  # noqa: PLC0415
    from component.commands.recording import recorded  # noqa: PLC0415
    from component.commands.tasks import TaskCommands  # noqa: PLC0415
    from component.service.options import (  # noqa: PLC0415
        DEFAULT_AGENT,
        agent_entries,
        budget_limits,
    )
    from component.tasks.ledger import Ledger  # noqa: PLC0415

    agents = Agents(agent_entries(settings), storage, recorder)
    await agents.load()
    ledger = Ledger(storage, round(settings.tasks.retention_s * 1000))
    commands = (
        *TaskCommands(ledger).commands(),
        *AdminCommands(lambda: _vitals(settings), ledger).commands(),
        *AgentCommands(agents).commands(),
        *SpendingCommands(
            BudgetBook(storage, budget_limits(settings), recorder), DEFAULT_AGENT
        ).commands(),
    )
    return Commands(recorded(commands, recorder))


def _vitals(settings: "Settings") -> "Vitals":
    import platform  # noqa: PLC0415
    from importlib.metadata import version  # noqa: PLC0415

    from component.commands.admin import Vitals  # noqa: PLC0415
    from component.service import SOFTWARE, load_skills  # noqa: PLC0415

    return Vitals(
        software=SOFTWARE,
        version=version(SOFTWARE),
        domain=settings.server.component_domain,
        storage="PostgreSQL" if settings.storage.postgres.get_secret_value() else "SQLite",
        skills=len(load_skills(settings).view("all", lambda _skill: True)),
        python=platform.python_version(),
        backend=settings.backend,
    )


def _show(answer: ControlAnswer, *, as_json: bool) -> None:
    import json  # noqa: PLC0415

    from component.cli.rows import print_rows, print_sheet  # noqa: PLC0415

    value = json.loads(bytes(answer.value))
    if as_json:
        # What has no value of its own is told by its text.
        shown = {"text": answer.text} if value is None else value
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    elif isinstance(value, list) and value:
        print_rows(value)
    elif isinstance(value, dict):
        print_sheet(value)
    else:
        click.echo(answer.text)
