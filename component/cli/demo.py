"""`xmpp-agent demo`: a server, the component and a client on this machine, and what they say."""

import errno
import importlib.util
import secrets
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from component.cli.frame import Fault

if TYPE_CHECKING:
    from component.devserver.server import DevServer
    from component.devserver.visitor import Visitor
    from component.settings import Settings

_HOST = "localhost"
_ADDRESS = "127.0.0.1"
_COMPONENT = f"agent.{_HOST}"
_JUDGED_INLINE_S = 2.0
_PASSWORD = "demo"  # noqa: S105 - printed for everybody, on loopback only


@click.command()
@click.option("--once", is_flag=True, help="End after the show instead of staying up.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=5222,
    show_default=True,
    help="Port for clients; if it is taken, a free one.",
)
@click.option(
    "--backend",
    type=click.Choice(["trio", "asyncio"]),
    default="trio",
    show_default=True,
    help="Event loop.",
)
@click.option("--fixtures", is_flag=True, help="Offer the skills of the conformance kit too.")
def demo(once: bool, port: int, backend: str, fixtures: bool) -> None:
    """See it all work, with a server of its own, on this machine alone.

    A client discovers the agent's skills and executes them: at once, as a task that tells how it
    goes, after a question to confirm, and by form. The XML is shown both ways. Then it stays up,
    so that you can log in with a client of your own.

    \b
    Examples:
      xmpp-agent demo
      xmpp-agent demo --once | less
    """
    if not all(importlib.util.find_spec(name) for name in ("trustme", "scramp")):
        raise Fault(
            "The demo's own server needs two packages more: "
            "pip install 'xmpp-agent-component[demo]'"
        )
    import anyio  # noqa: PLC0415 - --help needs none of it

    from component import logs  # noqa: PLC0415

    logs.configure("warning", "human")
    try:
        anyio.run(_show, once, port, fixtures, backend=backend)
    except* BrokenPipeError:
        # Whoever reads has had enough; click ends quietly when it is told without the group.
        raise BrokenPipeError(errno.EPIPE, "nobody reads any more") from None


async def _show(once: bool, port: int, fixtures: bool) -> None:
    import anyio  # noqa: PLC0415

    from component.cli import demo_scenes as scenes  # noqa: PLC0415
    from component.devserver.server import DevServer  # noqa: PLC0415
    from component.service import Service  # noqa: PLC0415

    secret = secrets.token_urlsafe(16)
    server = DevServer(
        _HOST,
        _ADDRESS,
        c2s_port=_free_or_any(port),
        accounts={"juliet": _PASSWORD, "mallory": _PASSWORD, "you": _PASSWORD},
        components={_COMPONENT: secret},
    )
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-demo-") as directory:
        async with server, anyio.create_task_group() as tasks:
            service = Service(_settings(server, secret, Path(directory), fixtures))
            await tasks.start(service.run)
            with anyio.fail_after(10):
                await service.established.wait()
            _title(f"A server for {_HOST} and the component {_COMPONENT} are up.")
            async with _visitor(server, "juliet") as juliet:
                await scenes.short_requests(juliet, _HOST, _COMPONENT)
                await scenes.a_task(juliet, _COMPONENT)
                await scenes.a_confirmation(juliet, _COMPONENT)
                await scenes.a_form(juliet, _COMPONENT)
            async with _visitor(server, "mallory") as mallory:
                await scenes.a_stranger(mallory, _COMPONENT)
            if not once:
                _invite(server)
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    await anext(signals)
                click.echo("\nGood-bye.")
            service.stop()


def _settings(server: "DevServer", secret: str, directory: Path, fixtures: bool) -> "Settings":
    from pydantic import SecretStr  # noqa: PLC0415

    from component.settings import model  # noqa: PLC0415

    return model.Settings(
        server=model.Server(
            host=_ADDRESS,
            port=server.component_port,
            component_domain=_COMPONENT,
            component_secret=SecretStr(secret),
        ),
        agent=model.Agent(name="Demo agent", allowed_jids=(f"juliet@{_HOST}", f"you@{_HOST}")),
        skills=model.Skills(modules=("component.cli.demo_skills",)),
        storage=model.Storage(path=directory),
        conformance=model.Conformance(enabled=fixtures),
        # Whoever judges waits for that limit several times.
        limits=model.Limits(inline_s=_JUDGED_INLINE_S) if fixtures else model.Limits(),
    )


def _visitor(server: "DevServer", account: str) -> "Visitor":
    from component.devserver.visitor import Visitor  # noqa: PLC0415

    assert server.ca_file is not None, "the server is running"
    return Visitor(
        account,
        _PASSWORD,
        host=_HOST,
        address=_ADDRESS,
        port=server.c2s_port,
        ca_file=server.ca_file,
    )


def _free_or_any(port: int) -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((_ADDRESS, port))
        except OSError:
            return 0
    return port


def _invite(server: "DevServer") -> None:
    _title("It stays up. Log in with a client of your own:")
    rows = (
        ("account", f"you@{_HOST}"),
        ("password", _PASSWORD),
        ("server", f"{_ADDRESS}, port {server.c2s_port}, STARTTLS"),
        ("trust", f"the authority in {server.ca_file}, or accept the certificate"),
        ("write to", f"{_COMPONENT}, for example: /skills"),
        ("run", "a skill from your client's menu of commands: empty-folder asks you first"),
    )
    for name, value in rows:
        click.echo(f"  {click.style(f'{name:<9}', bold=True)} {value}")
    click.echo("\nOr add a contact and see it online. Ctrl-C ends it.")


def _title(text: str) -> None:
    click.echo("\n" + click.style(text, bold=True))
