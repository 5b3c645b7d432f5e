"""The report on a terminal: progress during the run, and the results at the end."""

import click

from conformance.model import RED, Outcome, ProfileStatus, Result, Run, Status, Verdict
from conformance.requirements import Specification

_COLOURS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.BLOCKED: "red",
    Outcome.FAULT: "magenta",
    Outcome.UNOBSERVABLE: "yellow",
    Outcome.UNCLAIMED: "yellow",
}
_SIGNS = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.BLOCKED: "✗",
    Outcome.FAULT: "!",
    Outcome.UNOBSERVABLE: "·",
    Outcome.UNCLAIMED: "·",
}
PROFILE_COLOURS = {
    ProfileStatus.HOLDS: "green",
    ProfileStatus.PARTLY: "green",
    ProfileStatus.FAILS: "red",
    ProfileStatus.NOT_CLAIMED: "yellow",
    ProfileStatus.NOT_JUDGED: "yellow",
}
_LONGEST = 400


def progress(result: Result, done: int, whole: int) -> None:
    """Print a line for a check that has ended; an argument for `runner.run`."""
    sign = click.style(_SIGNS[result.outcome], fg=_COLOURS[result.outcome])
    ids = click.style(" ".join(result.observes), dim=True)
    click.echo(f"{done:>3}/{whole} {sign} {result.name:<26} {result.title}  {ids}")


def summary(run: Run, specification: Specification, *, strict: bool) -> None:
    """Print the results."""
    red = [one for one in run.verdicts.values() if one.status in RED]
    soft = [one for one in run.verdicts.values() if one.status is Status.WARNING]
    if red:
        _heading("Not as the specification says")
        for verdict in red:
            _verdict(verdict, specification, "red")
    if soft:
        _heading("Warnings" + (", which count in this run" if strict else ""))
        for verdict in soft:
            _verdict(verdict, specification, "yellow")
    expected = [one for one in run.verdicts.values() if one.status is Status.EXPECTED]
    if expected:
        _heading("Expected by the baseline")
        for verdict in expected:
            click.echo(f"  {verdict.id}  {verdict.reason}")
    for id_ in run.stale:
        click.echo(f"error: the baseline names {id_}, which is no requirement.", err=True)
    for fault in run.faults:
        click.echo(f"fault of the kit: {fault}", err=True)
    _profiles(run, specification)
    verdict_of_all = "every claimed profile holds" if run.good else "not conformant"
    colour = "green" if run.good else "red"
    text = f"\n{run.target}: {verdict_of_all} ({run.seconds:.1f} s, {run.driver})"
    click.echo(click.style(text, fg=colour, bold=True))


def _profiles(run: Run, specification: Specification) -> None:
    _heading("Profiles")
    for profile in specification.profiles:
        status = run.profiles[profile.name]
        own = [
            run.verdicts[one.id].status
            for one in specification.requirements
            if one.profile == profile.name
        ]
        kept = own.count(Status.KEPT)
        text = click.style(f"{status.value:<34}", fg=PROFILE_COLOURS[status])
        click.echo(f"  {profile.name:<11} {text} {kept} of {len(own)} requirements seen kept")


def _verdict(verdict: Verdict, specification: Specification, colour: str) -> None:
    requirement = specification.by_id[verdict.id]
    head = click.style(f"{verdict.id} {verdict.status.value}", fg=colour, bold=True)
    click.echo(f"\n  {head}: {requirement.sentence}")
    click.echo(f"    {specification.anchor(requirement)}")
    found = False
    for result in verdict.results:
        for finding in result.findings:
            if finding.id == verdict.id:
                found = True
                click.echo(f"    in {result.name}")
                click.echo(f"      expected  {finding.expected}")
                click.echo(f"      got       {_short(finding.got)}")
    if not found and verdict.reason:
        click.echo(f"    {_short(verdict.reason)}")


def _heading(text: str) -> None:
    click.echo("\n" + click.style(text, bold=True))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
