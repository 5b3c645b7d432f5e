"""Commands of the service on the command line, made from their outlines.

If the service is running they go through its control socket. Otherwise the storage is opened here,
and commands that need no running service are executed.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component import logs  # the first, as it imports structlog without rich
from component.cli import frame
from component.cli.prompts import confirm_or_exit
from component.commands import AnyCommand, AnyOutline, CommandError
from component.control.client import (
    OLDER_SETTINGS,
    ControlAnswer,
    ControlError,
    ControlRequest,
    ask,
    has_other_settings,
)

if TYPE_CHECKING:
    from component.audit.protocol import Recorder
    from component.commands import Commands
    from component.config import Settings
    from component.features.service_commands.commands import Vitals
    from component.store import Storage

_BEFORE_THE_FIRST_RUN = frozenset(
    ("installed-skills", "show-skill", "approve-skill", "revoke-skill", "reject-skill")
)
"""Commands that make sense before the service has run: they create the database."""


@dataclass(frozen=True, kw_only=True)
class ServiceCommand:
    """A command of the service, as it is on the command line.

    Required parameters become arguments, unless they are in `options`, and the others options,
    unless they are in `arguments`.

    Attributes:
        outline: where its outline is declared, as `module:NAME`.
        name: its name on the command line.
        examples: what follows the name in examples, one per line.
        hidden: parameters that are left out.
        asks: a question for actions that cannot be undone, with the parameters in `{}`; on a
            terminal it is asked first.
        given: the values of parameters that are left out.
        check: raises an error for settings with which the command makes no sense.
        as_text: its result is printed as a text, in place of a table.
        group: the words before its name, and a space.
        about: what it does, in place of the outline's text.
    """

    outline: str = field(kw_only=False)
    name: str = field(kw_only=False)
    examples: str = field(kw_only=False)
    hidden: Collection[str] = ()
    asks: str | None = None
    options: Collection[str] = ()
    arguments: Collection[str] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    check: Callable[["Settings"], None] = lambda _settings: None
    as_text: bool = False
    group: str = ""

    def command(self, group: str = "") -> click.Command:
        """Import the outline, and return the command for it, in this group."""
        outline: AnyOutline = frame.load_attribute(self.outline)
        about = self.about or outline.about
        beginning = f"\n  xmpp-agent {group or self.group}{self.name}"
        lines = "".join(f"{beginning} {line}".rstrip() for line in self.examples.split("\n"))

        def perform(config: Path, as_json: bool, yes: bool = False, **said: Any) -> None:
            said = {**said, **self.given}
            texts = [
                (key, _text(value)) for key, value in said.items() if value not in (None, False)
            ]
            try:
                params = outline.read(texts)
            except CommandError as error:
                raise click.UsageError(str(error)) from None
            if self.asks is not None and not yes:
                _ask_first(self.asks.format_map(said))
            settings = frame.load_settings(config)
            self.check(settings)
            print_answer(
                ask_about(settings, outline.name, params), as_json=as_json, as_text=self.as_text
            )

        left_out = (*self.hidden, *self.given)
        schemas: Mapping[str, dict[str, Any]] = outline.schema["properties"]
        params = [
            self._param(key, schema, is_required=key in outline.schema["required"])
            for key, schema in schemas.items()
            if key not in left_out
        ]
        if self.asks is not None:
            yes = click.Option(["--yes", "-y"], is_flag=True, help="Do not ask for confirmation.")
            params.append(yes)
        made = click.Command(
            self.name,
            callback=perform,
            params=params,
            help=f"{about[:1].upper()}{about[1:]}.\n\n\b\nExamples:{lines}",
        )
        frame.json_option()(made)
        frame.config_option(made)
        return made

    def _param(self, name: str, schema: dict[str, Any], *, is_required: bool) -> click.Parameter:
        kinds = [schema, *schema.get("anyOf", ())]
        if name in self.arguments or (is_required and name not in self.options):
            return click.Argument([name], metavar=name.upper())
        described = str(schema.get("description", ""))
        default = schema.get("default")
        if any(kind.get("type") == "boolean" for kind in kinds):
            return click.Option([f"--{name}"], is_flag=True, help=described)
        if default not in (None, "", ()):
            described = f"{described}  [default: {default}]"
        choices = [value for kind in kinds for value in kind.get("enum", ()) if value is not None]
        metavar = "N" if any(kind.get("type") == "integer" for kind in kinds) else None
        return click.Option(
            [f"--{name}"],
            required=is_required,
            type=click.Choice(choices) if choices else click.STRING,
            metavar=metavar,
            help=described,
        )


def _ask_first(question: str) -> None:
    """Continue if a person says yes. A script is never asked: it has to pass an option."""
    if not frame.interactive():
        raise click.UsageError(
            "This cannot be undone, and there is no terminal to ask for confirmation: add --yes."
        )
    confirm_or_exit(question)


def _text(value: Any) -> str:
    return "true" if value is True else str(value)


def ask_about(settings: "Settings", name: str, params: Any) -> ControlAnswer:
    """Return the answer of the service with these settings, or of its storage. Raises Fault."""
    import msgspec  # noqa: PLC0415 - --help needs none of it

    request = ControlRequest(name, msgspec.Raw(msgspec.json.encode(params)))
    try:
        answer = ask(settings.storage.path, request)
    except ControlError as error:
        raise frame.Fault(str(error)) from None
    if answer is None:
        answer = _without_service(settings, request)
        if answer.unknown:
            raise frame.Fault(
                f"The service is not running on {settings.storage.path}, and this command needs"
                " it. Start it with `xmpp-agent run`."
            )
    older = OLDER_SETTINGS if has_other_settings(answer, settings) else ""
    if answer.unknown and older:
        raise frame.Fault(f"The running service has no command {name!r}. {older}")
    if older:
        click.echo(f"note: {older}", err=True)
    if answer.error is not None:
        raise frame.Fault(*answer.error.splitlines())
    return answer


def _without_service(settings: "Settings", request: ControlRequest) -> ControlAnswer:
    import anyio  # noqa: PLC0415

    from component.app.schema import SCHEMA  # noqa: PLC0415
    from component.control.server import run_command  # noqa: PLC0415
    from component.kernel.monitoring import open_monitoring  # noqa: PLC0415
    from component.skills import DuplicateSkillError, SkillLoadError  # noqa: PLC0415
    from component.store import Storage, StorageError  # noqa: PLC0415

    logs.configure("error", "human")  # what a service would log is in the answer
    path, postgres = settings.storage.path, settings.storage.postgres.get_secret_value()
    new = request.command in _BEFORE_THE_FIRST_RUN
    if not new and not postgres and not (path / "agent.db").exists():
        raise frame.Fault(
            f"There is no database in {path}: the service has not run there yet, or has another"
            " path in [storage]."
        )

    async def performed() -> ControlAnswer:
        async with (
            Storage.open(SCHEMA, path, postgres=postgres) as storage,
            open_monitoring(settings, storage) as monitoring,
            _installed(settings, storage, monitoring.recorder) as installed,
        ):
            commands = await _commands(settings, storage, monitoring.recorder, installed)
            return await run_command(commands, request)

    try:
        return anyio.run(performed, backend=settings.backend)
    except StorageError as error:
        raise frame.Fault(str(error)) from None
    except (SkillLoadError, DuplicateSkillError) as error:
        raise frame.ConfigFault(str(error)) from None


@asynccontextmanager
async def _installed(
    settings: "Settings", storage: "Storage", recorder: "Recorder"
) -> AsyncIterator["Sequence[AnyCommand]"]:
    from component.features.installed_skills.feature import (  # noqa: PLC0415
        installed_commands,
        persona_proposals,
        skill_descriptions,
        skill_directories,
    )

    directories = skill_directories(settings, storage, recorder)
    descriptions = skill_descriptions(settings, storage, recorder)
    async with nullcontext() if directories is None else directories.opened():
        personas = persona_proposals(settings, storage, recorder)
        yield installed_commands(directories, descriptions, personas)


async def _commands(
    settings: "Settings",
    storage: "Storage",
    recorder: "Recorder",
    installed: "Sequence[AnyCommand]",
) -> "Commands":
    from component import DEFAULT_AGENT  # noqa: PLC0415
    from component.agent.registry import Agents  # noqa: PLC0415
    from component.app.features import make_features  # noqa: PLC0415
    from component.budget.book import BudgetBook  # noqa: PLC0415
    from component.commands import Commands, recorded  # noqa: PLC0415
    from component.features.agents_admin.commands import AgentCommands, SpendingCommands  # noqa: PLC0415
    from component.features.service_commands.commands import AdminCommands  # noqa: PLC0415
    from component.kernel.options import (  # noqa: PLC0415
        agent_entries,
        budget_limits,
        task_limits,
    )
    from component.store.shared import Switches  # noqa: PLC0415
    from component.tasks.admin import TaskAdmin  # noqa: PLC0415

    agents = Agents(agent_entries(settings), storage, recorder)
    await agents.load()
    task_admin = TaskAdmin(storage, task_limits(settings))
    commands = (
        *AdminCommands(lambda _zone: _vitals(settings), task_admin, Switches(storage)).commands(),
        *AgentCommands(agents).commands(),
        *SpendingCommands(
            BudgetBook(storage, budget_limits(settings), recorder), DEFAULT_AGENT
        ).commands(),
        *chain.from_iterable(
            each.offline_commands(storage) for each in make_features(settings).values()
        ),
        *installed,
    )
    return Commands(recorded(commands, recorder))


def _vitals(settings: "Settings") -> "Vitals":
    from component.app.features import load_skills  # noqa: PLC0415
    from component.features.service_commands.feature import vitals_of  # noqa: PLC0415

    return vitals_of(settings, len(load_skills(settings).view("all", lambda _skill: True)))


def print_answer(answer: ControlAnswer, *, as_json: bool, as_text: bool = False) -> None:
    """Print the answer to a command: its value as a table or JSON, or its text."""
    import json  # noqa: PLC0415

    from component.cli.rows import print_rows, print_sheet  # noqa: PLC0415

    value = json.loads(bytes(answer.value))
    if as_json:
        # A result without a value is printed as its text.
        frame.print_json({"text": answer.text} if value is None else value)
    elif isinstance(value, list) and value and not as_text:
        print_rows(value)
    elif isinstance(value, dict) and not as_text:
        print_sheet(value)
    else:
        click.echo(answer.text)
