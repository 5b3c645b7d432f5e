"""`xmpp-agent upgrade` and `xmpp-agent rollback`: the database of another release."""

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from component.cli.frame import Fault, config_option, load_settings

P = ParamSpec("P")
R = TypeVar("R")


@click.command()
@config_option
@click.option(
    "--rehearse", is_flag=True, help="Only try it on a copy; the service may run meanwhile."
)
def upgrade(config: Path, *, rehearse: bool) -> None:
    """Upgrade the database of an older release.

    The service does the same when it starts. The upgrade is rehearsed on a copy of the database,
    makes a backup, and changes everything or nothing. `xmpp-agent rollback` undoes it.

    Stop the service first, and every other instance on the same PostgreSQL database.

    \b
    Examples:
      xmpp-agent upgrade --rehearse
      xmpp-agent upgrade --config /etc/xmpp-agent/agent.toml
    """
    from component.app.schema import SCHEMA  # noqa: PLC0415 - --help needs none of it
    from component.store import upgrade as upgrades  # noqa: PLC0415

    directory, postgres = _storage(config)
    if rehearse:
        version = _explained(upgrades.rehearse, SCHEMA, directory, postgres)
        if version is not None:
            click.echo(f"The upgrade from version {version} to {SCHEMA.version} succeeds.")
            return
    elif (made := _explained(upgrades.upgrade, SCHEMA, directory, postgres)) is not None:
        click.echo(f"Upgraded the database from version {made.before} to {made.after}.")
        click.echo(f"The backup is {made.backup}: `xmpp-agent rollback` puts it back.")
        return
    click.echo(f"The database has version {SCHEMA.version}: there is nothing to do.")


@click.command()
@config_option
@click.option(
    "--discard-newer", is_flag=True, help="Lose what was accepted since the upgrade, if anything."
)
def rollback(config: Path, *, discard_newer: bool) -> None:
    """Undo the last upgrade: put the backup of the database back.

    Stop the service first. The release from before the upgrade must then be installed, before or
    after this command, since a newer one upgrades the database again when it starts.

    Work that was accepted since the upgrade is not in the backup: the command is refused then,
    unless you add --discard-newer, which keeps the newer database aside. Memories, conversations
    and the audit log are files, and stay as they are.

    \b
    Examples:
      xmpp-agent rollback
      xmpp-agent rollback --discard-newer
    """
    from component.store import upgrade as upgrades  # noqa: PLC0415

    directory, postgres = _storage(config)
    undone = _explained(upgrades.roll_back, directory, postgres, discard_newer=discard_newer)
    click.echo(
        f"Put the backup of version {undone.before} back. Start the release from before the"
        f" upgrade; {undone.release} would upgrade the database again."
    )


def _storage(config: Path) -> tuple[Path, str]:
    settings = load_settings(config)
    return settings.storage.path, settings.storage.postgres.get_secret_value()


def _explained(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function, and end the command with the sentence of its StorageError."""
    from component import logs  # noqa: PLC0415
    from component.store import StorageError  # noqa: PLC0415

    logs.configure("error", "human")  # what a service would log is printed
    try:
        return function(*args, **kwargs)
    except StorageError as error:
        raise Fault(str(error)) from None
