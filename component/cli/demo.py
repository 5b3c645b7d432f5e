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
    from component.settings.llm import LLM

_HOST = "localhost"
_ADDRESS = "127.0.0.1"
_COMPONENT = f"agent.{_HOST}"
_JUDGED_INLINE_S = 2.0
_CONTEXT_TOKENS = 4096
_ANSWER_TOKENS = 200
_HISTORY_TOKENS = 800
_MODEL_S = 300.0
_SMALL = "SmolLM2-135M, a very small one that runs on this machine"
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
@click.option(
    "--fixtures",
    is_flag=True,
    help="Offer the skills of the conformance kit too, for who judges them: without a model.",
)
@click.option("--no-model", is_flag=True, help="Leave out the language model.")
@click.option(
    "--model-url",
    metavar="URL",
    help="Talk with the model at this address instead of the small one that comes along: any that"
    " speaks OpenAI's interface and needs no key, such as http://localhost:11434/v1 of Ollama.",
)
@click.option("--model", metavar="NAME", help="What that model is called there.")
def demo(
    once: bool,
    port: int,
    backend: str,
    fixtures: bool,
    no_model: bool,
    model_url: str | None,
    model: str | None,
) -> None:
    """See it all work, with a server of its own, on this machine alone.

    A client discovers the agent's skills and executes them: at once, as a task that tells how it
    goes, after a question to confirm, and by form. Then somebody talks with its language model, a
    very small one on this machine, which uses the skills. The XML is shown both ways. Then it
    stays up, so that you can log in with a client of your own, and talk.

    \b
    Examples:
      xmpp-agent demo
      xmpp-agent demo --once | less
      xmpp-agent demo --model-url http://localhost:11434/v1 --model llama3.2
    """
    if (model_url is None) != (model is None):
        raise click.UsageError("--model-url and --model belong together.")
    if not all(importlib.util.find_spec(name) for name in ("trustme", "scramp")):
        raise Fault(
            "The demo's own server needs two packages more: "
            "pip install 'xmpp-agent-component[demo]'"
        )
    import anyio  # noqa: PLC0415 - --help needs none of it

    from component import logs  # noqa: PLC0415
    from component.devserver.visitor import VisitError  # noqa: PLC0415

    logs.configure("warning", "human")
    llm = None if no_model or fixtures else _llm(model_url, model)
    interrupted = False
    try:
        anyio.run(_show, once, port, fixtures, llm, backend=backend)
    except* KeyboardInterrupt:
        interrupted = True  # the show takes long enough for somebody to have seen what they wanted
    except* VisitError:
        # An interrupt may hit the server in this process, and its visitors are the first to notice.
        if not interrupted:
            raise
    except* BrokenPipeError:
        # Whoever reads has had enough; click ends quietly when it is told without the group.
        raise BrokenPipeError(errno.EPIPE, "nobody reads any more") from None
    if interrupted:
        raise click.Abort


async def _show(once: bool, port: int, fixtures: bool, llm: "LLM | str | None") -> None:
    """Show it all. A text instead of a model says why there is none."""
    import anyio  # noqa: PLC0415

    from component.cli import demo_scenes as scenes  # noqa: PLC0415
    from component.cli.demo_screen import note, title  # noqa: PLC0415
    from component.cli.demo_talk import talk  # noqa: PLC0415
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
            talks = None if isinstance(llm, str) else llm
            service = Service(_settings(server, secret, Path(directory), fixtures, talks))
            await tasks.start(service.run)
            with anyio.fail_after(10):
                await service.established.wait()
            title(f"A server for {_HOST} and the component {_COMPONENT} are up.")
            async with _visitor(server, "juliet") as juliet:
                await scenes.short_requests(juliet, _HOST, _COMPONENT)
                await scenes.a_task(juliet, _COMPONENT)
                await scenes.a_confirmation(juliet, _COMPONENT)
                await scenes.a_form(juliet, _COMPONENT)
            async with _visitor(server, "mallory") as mallory:
                await scenes.a_stranger(mallory, _COMPONENT)
            if isinstance(llm, str):
                title("No language model")
                note(llm)
            elif llm is not None:
                title(f"In plain words, with the language model {llm.model or _SMALL}")
                async with _visitor(server, "juliet") as juliet:
                    await talk(juliet, _COMPONENT)
            if not once:
                _invite(server, talks=talks is not None)
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    await anext(signals)
                click.echo("\nGood-bye.")
            service.stop()


def _llm(url: str | None, name: str | None) -> "LLM | str":
    """The model to talk with, or a sentence on why there is none and how to have one."""
    from component.models.local import build_local  # noqa: PLC0415
    from component.models.openai_compatible import require_sdk  # noqa: PLC0415
    from component.models.protocol import ModelRefusedError  # noqa: PLC0415
    from component.settings.llm import LLM  # noqa: PLC0415

    try:
        if url is None or name is None:
            llm = LLM(
                provider="local",
                # Reading takes most of the time, so nothing is told at length.
                context_tokens=_CONTEXT_TOKENS,
                max_tokens_per_request=_ANSWER_TOKENS,
                timeout_s=_MODEL_S,
            )
            build_local(llm)
        else:
            llm = LLM(provider="vllm", model=name, base_url=url)
            require_sdk(llm.provider)
    except ModelRefusedError as error:
        return f"{error}"
    return llm


def _settings(
    server: "DevServer", secret: str, directory: Path, fixtures: bool, llm: "LLM | None"
) -> "Settings":
    from pydantic import SecretStr  # noqa: PLC0415

    from component import settings  # noqa: PLC0415
    from component.settings.agents import AgentEntry  # noqa: PLC0415
    from component.settings.memory import Session  # noqa: PLC0415

    assistant = AgentEntry(
        name="assistant",
        identity="You are an assistant in a chat.",
        personality="Answer in one short sentence.",
        instructions="Use a tool when it helps.",
        skills=("time", "empty-folder", "trip-cost"),
        spawn=False,
    )
    return settings.Settings(
        server=settings.Server(
            host=_ADDRESS,
            port=server.component_port,
            component_domain=_COMPONENT,
            component_secret=SecretStr(secret),
        ),
        agent=settings.Agent(name="Demo agent", allowed_jids=(f"juliet@{_HOST}", f"you@{_HOST}")),
        agents=() if llm is None else (assistant,),
        llm=llm,
        session=Session(history_tokens=_HISTORY_TOKENS),
        skills=settings.Skills(modules=("component.cli.demo_skills",)),
        storage=settings.Storage(path=directory),
        conformance=settings.Conformance(enabled=fixtures),
        # Whoever judges waits for that limit several times.
        limits=settings.Limits(inline_s=_JUDGED_INLINE_S) if fixtures else settings.Limits(),
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


def _invite(server: "DevServer", *, talks: bool) -> None:
    from component.cli.demo_screen import title  # noqa: PLC0415

    title("It stays up. Log in with a client of your own:")
    words = "and just chat: its model answers; or, for example: /skills"
    rows = (
        ("account", f"you@{_HOST}"),
        ("password", _PASSWORD),
        ("server", f"{_ADDRESS}, port {server.c2s_port}, STARTTLS"),
        ("trust", f"the authority in {server.ca_file}, or accept the certificate"),
        ("write to", f"{_COMPONENT}, {words if talks else 'for example: /skills'}"),
        ("run", "a skill from your client's menu of commands: empty-folder asks you first"),
    )
    for name, value in rows:
        click.echo(f"  {click.style(f'{name:<9}', bold=True)} {value}")
    click.echo("\nOr add a contact and see it online. Ctrl-C ends it.")
