"""`xmpp-agent-conformance`: the command line."""

from collections.abc import Callable
from pathlib import Path

import click

from conformance.options import CommandLineOptions
from conformance.way import driver_of, target_of

VERSIONS = ("0",)
"""The same as in conformance.requirements, which --help should not have to load. A test compares
them.
"""
EXIT_BROKEN = 1
EXIT_USAGE = 2
EXIT_UNREACHED = 3

_EPILOG = """\b
Examples:
  xmpp-agent-conformance --self-test
  xmpp-agent-conformance agent.example.net --jid juliet@example.net --password-env PASSWORD
  xmpp-agent-conformance agent.example.net --component tester.example.net \\
      --secret-env SECRET --host xmpp.example.net --port 5347 --html report.html
  xmpp-agent-conformance agent.example.net --acceptor 127.0.0.1:5275 --secret-env SECRET EXE
  xmpp-agent-conformance --list confirm
  xmpp-agent-conformance replay script.txt --jid juliet@example.net

\b
Exit codes:
  0  every claimed profile holds
  1  a claimed profile fails, or none is claimed
  2  the command line or a file of it is wrong
  3  the target was not reached

The stanzas of --jid go through slixmpp, which knows nothing of this project:
pip install 'xmpp-agent-component[conformance-client]'"""


_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1, metavar="TARGET [WHAT]...")
@click.option("--self-test", is_flag=True, help="Judge the xmpp-agent of this machine. No TARGET.")
@click.option("--list", "listing", is_flag=True, help="List requirements and checks. No TARGET.")
@click.option("--jid", help="Reach the target as a client: the account.")
@click.option(
    "--password-env",
    default="PASSWORD",
    show_default=True,
    metavar="VAR",
    help="Variable that holds its password.",
)
@click.option("--second-jid", help="A second account, which plays the stranger.")
@click.option("--second-password-env", metavar="VAR", help="Variable that holds its password.")
@click.option("--component", metavar="DOMAIN", help="Reach the target as a component of a server.")
@click.option("--acceptor", metavar="HOST:PORT", help="Listen here; the target connects to us.")
@click.option(
    "--secret-env",
    default="SECRET",
    show_default=True,
    metavar="VAR",
    help="Environment variable with the component secret, for both.",
)
@click.option("--host", help="Host of the server, if not the domain of the account.")
@click.option("--port", type=click.IntRange(1, 65535), help="Its port for clients or components.")
@click.option(
    "--insecure", is_flag=True, help="Allow unverified and unencrypted streams. For tests."
)
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, exists=True),
    help="PEM file of an authority to trust besides the system's.",
)
@click.option(
    "--users",
    metavar="DOMAIN",
    help="With --acceptor: the domain of the users that"
    " the kit acts as. [default: TARGET without its first label]",
)
@click.option("--refused", metavar="JID", help="An address that the target's policy refuses.")
@click.option(
    "--peer",
    metavar="JID",
    help="The agent that the kit acts as, with --component or --acceptor; the target"
    " has to admit it. [default: peer at the domain of the kit's users]",
)
@click.option("--profile", multiple=True, help="Test this profile, announced or not.")
@click.option("--skills", type=_FILE, help="TOML file that maps roles to the target's own skills.")
@click.option("--baseline", type=_FILE, help="TOML file of expected failures.")
@click.option(
    "--spec-version",
    type=click.Choice(VERSIONS),
    default=VERSIONS[-1],
    show_default=True,
    help="The version of the specification to test against.",
)
@click.option("--strict", is_flag=True, help="A SHOULD that is not followed counts as a failure.")
@click.option("--hostile", is_flag=True, help="Include checks that could harm a production server.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 120),
    default=10.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)
@click.option("--html", type=_FILE, help="Write a report as one page.")
@click.option("--junit", type=_FILE, help="Write a report as JUnit XML.")
@click.option("--json", type=_FILE, help="Write a report as JSON.")
@click.option("--script", type=_FILE, help="Write the stanzas of every check as text.")
@click.version_option(package_name="xmpp-agent-component", prog_name="xmpp-agent-conformance")
def command(**given: object) -> None:
    """Test an agent of urn:fluux:agent:0 over XMPP.

    TARGET is the address of the agent, or of the component that hosts it. WHAT selects the
    requirements to test: a requirement (EXE-012), a family (EXE), a profile (confirm), a section
    (params) or a check (execute.arrays).

    With `replay FILE` instead, stanzas saved by --script are sent again, and the answers compared.
    """
    options = CommandLineOptions(**given)  # type: ignore[arg-type]
    if options.words[:1] == ("replay",):
        raise SystemExit(_replay(options))
    if options.listing:
        _list(options)
        return
    raise SystemExit(_judge(options))


def main() -> None:
    """Run the command line; exits with one of the documented codes."""
    command(prog_name="xmpp-agent-conformance")


# -- listing -------------------------------------------------------------------------------------


def _list(options: CommandLineOptions) -> None:
    from conformance.checks import all_checks  # noqa: PLC0415 - --help needs none of it
    from conformance.requirements import load  # noqa: PLC0415
    from conformance.selection import SelectionError, select  # noqa: PLC0415
    from conformance.watches import watches  # noqa: PLC0415

    specification = load(options.spec_version)
    checks = all_checks()
    try:
        chosen = select((*options.words, *options.profile), specification, checks)
    except SelectionError as error:
        raise click.UsageError(str(error)) from None
    observers: dict[str, list[str]] = {}
    named = [(one.name, one.observes) for one in checks]
    named += [(one.name, one.observes) for one in watches(0)]
    for name, observes in named:
        for id_ in observes:
            observers.setdefault(id_, []).append(name)
    for requirement in specification.requirements:
        if requirement.id in chosen.ids:
            by = ", ".join(observers.get(requirement.id, ())) or "-"
            level = f"{requirement.level:<10}"
            click.echo(f"{requirement.id}  {level} {requirement.profile:<10} {by}")


# -- replaying
# --------------------------------------------------------------------------------------


def _replay(options: CommandLineOptions) -> int:
    import anyio  # noqa: PLC0415

    from conformance.drivers import DriverError  # noqa: PLC0415
    from conformance.replay import Replay, read_script  # noqa: PLC0415

    if len(options.words) != 2:
        raise click.UsageError("replay takes one FILE, which --script has written.")
    try:
        scenes = read_script(Path(options.words[1]).read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    ways = [one for one in (options.jid, options.component, options.acceptor) if one is not None]
    if len(ways) != 1 and not options.self_test:
        raise click.UsageError("Choose one way to the target: --jid, --component or --acceptor.")
    target = next(one.target for one in scenes if one.target)

    async def again() -> list[str]:
        async with driver_of(options, target) as driver:
            return await Replay(driver, options.timeout).run(scenes)

    lines: list[str] | None = None
    try:
        lines = anyio.run(again, backend="asyncio")
    except* DriverError as group:
        for fault in _leaves(group):
            click.echo(f"error: {fault}", err=True)
    if lines is None:
        return EXIT_UNREACHED
    for line in lines:
        click.echo(line)
    differ = sum(line.startswith("≠") for line in lines)
    click.echo(f"{len(scenes)} checks sent again, {differ} differences")
    return EXIT_BROKEN if differ else 0


# -- testing ---------------------------------------------------------------------------------------


def _judge(options: CommandLineOptions) -> int:
    import anyio  # noqa: PLC0415

    from conformance.baseline import read_baseline  # noqa: PLC0415
    from conformance.checks import all_checks  # noqa: PLC0415
    from conformance.drivers import DriverError  # noqa: PLC0415
    from conformance.requirements import load  # noqa: PLC0415
    from conformance.runner import Plan  # noqa: PLC0415
    from conformance.selection import SelectionError, select  # noqa: PLC0415
    from conformance.skills_map import fixtures, read_map  # noqa: PLC0415

    target, words = target_of(options)
    specification = load(options.spec_version)
    try:
        chosen = select((*words, *options.profile), specification, all_checks())
        skills = fixtures() if options.skills is None else read_map(options.skills)
        baseline = {} if options.baseline is None else read_baseline(options.baseline)
    except (SelectionError, ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    known = {profile.name for profile in specification.profiles}
    plan = Plan(
        target,
        specification,
        chosen,
        skills,
        timeout=options.timeout,
        strict=options.strict,
        baseline=baseline,
        claims=frozenset(options.profile) & known,
    )
    try:
        # The client driver's library requires asyncio; one event loop serves everything.
        return anyio.run(_run, plan, options, backend="asyncio")
    except* DriverError as group:
        for fault in _leaves(group):
            click.echo(f"error: {fault}", err=True)
    return EXIT_UNREACHED


def _leaves(group: BaseExceptionGroup[Exception]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found


async def _run(plan: object, options: CommandLineOptions) -> int:
    from conformance import runner  # noqa: PLC0415
    from conformance.report import html, machine, text  # noqa: PLC0415

    assert isinstance(plan, runner.Plan)
    async with driver_of(options, plan.address) as driver:
        run = await runner.run(plan, driver, text.progress)
    text.summary(run, plan.specification, strict=plan.strict)
    reports: list[tuple[Path | None, Callable[[], str]]] = [
        (options.html, lambda: html.as_html(run, plan.specification)),
        (options.json, lambda: machine.as_json(run, plan.specification)),
        (options.junit, lambda: machine.as_junit(run, plan.specification, strict=plan.strict)),
        (options.script, lambda: machine.as_script(run)),
    ]
    for path, made in reports:
        if path is not None:
            path.write_text(made(), "utf-8")
            click.echo(f"wrote {path}")
    return 0 if run.good else EXIT_BROKEN
