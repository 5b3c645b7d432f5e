"""`xmpp-agent skills show|approve|revoke`: the skills that are installed in directories."""

import json
from pathlib import Path
from typing import Any

import click

from component.cli.exit_codes import ExitCode
from component.cli.frame import config_option, interactive, load_settings
from component.cli.operator import ask_about

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("name")
@_json
@config_option
def show(name: str, as_json: bool, config: Path) -> None:
    """Show what an installed skill may do, and what has changed since it was approved.

    \b
    Examples:
      xmpp-agent skills show weather.today
      xmpp-agent skills show weather.today --json | jq -r .digest
    """
    _print(config, "show-skill", {"name": name}, as_json=as_json)


@click.command()
@click.argument("name")
@click.option(
    "--trusted",
    is_flag=True,
    help="Run it inside the service, where nothing limits it. Only for Python skills whose author"
    " you trust.",
)
@click.option(
    "--digest",
    default="",
    metavar="DIGEST",
    help="Approve only this content: the beginning of the digest that `skills show` prints.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@_json
@config_option
def approve(name: str, trusted: bool, digest: str, yes: bool, as_json: bool, config: Path) -> None:
    """Offer an installed skill, with the capabilities that it declares.

    What runs is the content that was shown; a later change has to be approved again.

    \b
    Examples:
      xmpp-agent skills approve weather.today
      xmpp-agent skills approve --yes --digest 4f1c09aa weather.today
    """
    params = {"name": name, "digest": digest, "trusted": trusted}
    if not yes:
        if not interactive():
            raise click.UsageError(
                "There is no terminal to ask for confirmation: look at the skill with"
                f" `xmpp-agent skills show {name}`, and add --yes."
            )
        settings = load_settings(config)
        found = ask_about(settings, "show-skill", {"name": name})
        click.echo(found.text, err=True)
        if not click.confirm(f"Approve {name}?", err=True):
            click.echo("Cancelled: nothing was changed.", err=True)
            raise click.exceptions.Exit(ExitCode.FAILURE)
        # What was shown is approved, even if a file has changed meanwhile.
        params["digest"] = digest or json.loads(bytes(found.value))["digest"]
    _print(config, "approve-skill", params, as_json=as_json)


@click.command()
@click.argument("name")
@_json
@config_option
def revoke(name: str, as_json: bool, config: Path) -> None:
    """Stop offering an installed skill, and stop its calls.

    \b
    Examples:
      xmpp-agent skills revoke weather.today
    """
    _print(config, "revoke-skill", {"name": name}, as_json=as_json)


@click.command()
@click.argument("name")
@_json
@config_option
def reject(name: str, as_json: bool, config: Path) -> None:
    """Delete a proposed skill that is not approved.

    \b
    Examples:
      xmpp-agent skills reject weather.today
    """
    _print(config, "reject-skill", {"name": name}, as_json=as_json)


def _print(config: Path, command: str, params: dict[str, Any], *, as_json: bool) -> None:
    settings = load_settings(config)
    if not (settings.skill_roots or settings.described_sources):
        raise click.UsageError(
            "The settings name no directories of skills: add [skills] directories."
        )
    answer = ask_about(settings, command, params)
    if as_json:
        click.echo(json.dumps(json.loads(bytes(answer.value)), indent=2, ensure_ascii=False))
    else:
        click.echo(answer.text)
