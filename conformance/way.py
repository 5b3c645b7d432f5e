"""Creates the driver that the command line selects."""

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click

from conformance.options import CommandLineOptions

if TYPE_CHECKING:
    from conformance.drivers import Driver
    from conformance.drivers.acceptor import AcceptorDriver
    from conformance.drivers.client import ClientDriver
    from conformance.drivers.component import ComponentDriver
    from conformance.self_test import Site


def target_of(options: CommandLineOptions) -> tuple[str, tuple[str, ...]]:
    """Return the target, and the selected tests. Raises click.UsageError."""
    from conformance.self_test import DOMAIN  # noqa: PLC0415

    ways = [one for one in (options.jid, options.component, options.acceptor) if one is not None]
    if options.self_test:
        if options.jid or options.component:
            raise click.UsageError(
                "--self-test brings its own server; only --acceptor goes with it."
            )
        return DOMAIN, options.words
    if not options.words:
        raise click.UsageError("Name the TARGET, or use --self-test. See --help for examples.")
    if len(ways) != 1:
        raise click.UsageError("Choose one way to the target: --jid, --component or --acceptor.")
    return options.words[0], options.words[1:]


@contextlib.asynccontextmanager
async def driver_of(options: CommandLineOptions, target: str) -> "AsyncIterator[Driver]":
    """Yield the driver for the target. Raises click.UsageError."""
    from conformance import self_test  # noqa: PLC0415

    if options.self_test and options.acceptor is None:
        async with self_test.demonstrated() as site:
            yield _demo_client(site, options)
    elif options.self_test:
        secret = self_test.new_secret()
        acceptor = _acceptor(options, target, secret, self_test.REFUSED)
        async with acceptor.listening(), self_test.attached(acceptor.host, acceptor.port, secret):
            yield acceptor
    elif options.acceptor is not None:
        yield _acceptor(options, target, _secret(options.secret_env), options.refused)
    elif options.component is not None:
        yield _component(options)
    else:
        yield _client(options)


def _acceptor(
    options: CommandLineOptions, target: str, secret: str, refused: str | None
) -> "AcceptorDriver":
    from conformance.drivers.acceptor import AcceptorDriver  # noqa: PLC0415

    host, _, port = (options.acceptor or "").rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError("--acceptor is HOST:PORT, such as 127.0.0.1:5275.")
    domain = target.partition("/")[0].rpartition("@")[2]
    users = options.users or domain.partition(".")[2] or domain
    return AcceptorDriver(
        domain,
        secret,
        caller=f"juliet@{users}",
        stranger=f"romeo@{users}",
        refused=refused,
        peer=options.peer,
        host=host,
        port=int(port),
        hostile=options.hostile,
    )


def _component(options: CommandLineOptions) -> "ComponentDriver":
    from conformance.drivers.component import ComponentDriver  # noqa: PLC0415

    assert options.component is not None
    return ComponentDriver(
        options.component,
        _secret(options.secret_env),
        host=options.host or options.component.partition(".")[2],
        port=options.port or 5347,
        refused=options.refused,
        peer=options.peer,
        hostile=options.hostile,
    )


def _client(options: CommandLineOptions) -> "ClientDriver":
    from conformance.drivers.client import Account, ClientDriver, Server  # noqa: PLC0415

    assert options.jid is not None
    stranger = None
    if options.second_jid is not None:
        if options.second_password_env is None:
            raise click.UsageError("--second-jid needs --second-password-env.")
        secret = _secret(options.second_password_env)
        stranger = Account(options.second_jid, secret, ("--second-jid", "--second-password-env"))
    return ClientDriver(
        Server(options.host, options.port, options.ca_file, options.insecure),
        Account(options.jid, _secret(options.password_env)),
        stranger=stranger,
        hostile=options.hostile,
    )


def _demo_client(site: "Site", options: CommandLineOptions) -> "ClientDriver":
    from conformance.drivers.client import Account, ClientDriver, Server  # noqa: PLC0415

    password = "demo"  # noqa: S105 - `xmpp-agent demo` prints it for everybody, on loopback
    return ClientDriver(
        Server(site.host, site.port, site.ca_file),
        Account("juliet@localhost", password),
        stranger=Account("you@localhost", password),
        refused=Account("mallory@localhost", password),
        hostile=options.hostile,
    )


def _secret(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise click.UsageError(f"The environment variable {variable} is not set.")
    return value
