"""`xmpp-agent demo`: a server, the component and a client on this machine, and their stanzas."""

import errno
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component import system
from component.cli.frame import Fault, Interrupted

if TYPE_CHECKING:
    from component.config import Settings
    from component.config.llm import LLM
    from demo_server.server import DemoServer
    from demo_server.visitor import Visitor

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
@click.option("--once", is_flag=True, help="Exit after the demonstration.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=5222,
    show_default=True,
    help="Port for clients. If it is in use, the demo chooses a free one.",
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
    help="Also offer the test skills of the conformance kit. No language model is used.",
)
@click.option("--no-model", is_flag=True, help="Do not use a language model.")
@click.option(
    "--model-url",
    metavar="URL",
    help="Use the model at this URL instead of the small bundled one. It must be compatible"
    " with the OpenAI API and need no key, such as Ollama at http://localhost:11434/v1.",
)
@click.option("--model", metavar="NAME", help="Name of the model at --model-url.")
@click.option(
    "--skills",
    "own",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Offer the skills of this Python file, or the skill of this directory, and show nothing"
    " else. A change of the directory is offered at once. May be repeated.",
)
def demo(
    once: bool, port: int, backend: str, fixtures: bool, own: tuple[Path, ...], **model: Any
) -> None:
    """Run a demonstration on this machine, with a built-in XMPP server.

    A client discovers the agent's skills and executes them: with an immediate result, as a task
    that reports its progress, after a confirmation, and with a form. A schedule fires and its
    result arrives. Then a person chats with a very small language model on this machine, which uses
    the skills. The demo shows the XML that is sent and received. Then it keeps running, so that you
    can log in with your own client and chat with the agent.

    \b
    Examples:
      xmpp-agent demo
      xmpp-agent demo --once | less
      xmpp-agent demo --model-url http://localhost:11434/v1 --model llama3.2
      xmpp-agent demo --no-model --skills ./weather
    """
    if (model["model_url"] is None) != (model["model"] is None):
        raise click.UsageError("--model-url and --model must be given together.")
    import anyio  # noqa: PLC0415 - --help needs none of it

    from component import logs  # noqa: PLC0415

    try:
        from demo_server.visitor import VisitError  # noqa: PLC0415
    except ImportError as error:  # the message says how to install the extra
        raise Fault(str(error)) from None

    logs.configure("warning", "human")
    llm = None
    if not (model["no_model"] or fixtures):
        llm = _llm(model["model_url"], model["model"])
    interrupted = False
    try:
        anyio.run(_show, once, port, fixtures, llm, own, backend=backend)
    except* KeyboardInterrupt:
        interrupted = True  # the demo takes long enough that the user may have seen enough
    except* VisitError:
        # An interrupt may hit the server in this process, and its clients notice it first.
        if not interrupted:
            raise
    except* BrokenPipeError:
        # The reader has closed the pipe; click exits quietly if the error is not in a group.
        raise BrokenPipeError(errno.EPIPE, "nobody reads any more") from None
    if interrupted:
        raise Interrupted


async def _show(
    once: bool, port: int, fixtures: bool, llm: "LLM | str | None", own: Sequence[Path]
) -> None:
    """Run all scenes, or none with skills of the user. A text instead of a model says why there is
    none.
    """
    import anyio  # noqa: PLC0415

    from component.app.service import Service  # noqa: PLC0415
    from component.cli.demo_screen import note, title  # noqa: PLC0415
    from demo_server.server import DemoServer  # noqa: PLC0415

    names = names_of(own)
    secret = system.token_urlsafe(16)
    server = DemoServer(
        _HOST,
        _ADDRESS,
        c2s_port=_free_or_any(port),
        accounts=dict.fromkeys(("juliet", "mallory", "nurse", "you"), _PASSWORD),
        components={_COMPONENT: secret},
    )
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-demo-") as directory:
        async with server, anyio.create_task_group() as tasks:
            talks = None if isinstance(llm, str) else llm
            settings = _settings(server, secret, Path(directory), fixtures, talks)
            service = Service(with_skills(settings, own, names))
            await tasks.start(service.run)
            with anyio.fail_after(10):
                await service.established.wait()
            title(f"A server for {_HOST} and the component {_COMPONENT} are running.")
            if own:
                lost = [name for name in names if service.catalog.registry.get(name) is None]
                if lost:
                    note(f"not offered, for the reason in the log: {', '.join(lost)}")
                else:
                    note(f"your skills are offered: {', '.join(names)}")
            else:
                await _play(server, llm)
            if not once:
                _invite(server, talks=talks is not None)
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    await anext(signals)
                click.echo("\nGood-bye.")
            service.stop()


async def _play(server: "DemoServer", llm: "LLM | str | None") -> None:
    from component.cli import demo_scenes as scenes  # noqa: PLC0415
    from component.cli.demo_screen import note, title  # noqa: PLC0415

    async with _visitor(server, "juliet") as juliet:
        await scenes.short_requests(juliet, _HOST, _COMPONENT)
        await scenes.a_task(juliet, _COMPONENT)
        await scenes.a_confirmation(juliet, _COMPONENT)
        await scenes.a_form(juliet, _COMPONENT)
        async with _visitor(server, "nurse") as nurse:
            await scenes.a_watch(juliet, nurse, _COMPONENT)
        await scenes.a_schedule(juliet, _COMPONENT)
        await scenes.a_memory(juliet, _COMPONENT, f"juliet@{_HOST}")
    async with _visitor(server, "mallory") as mallory:
        await scenes.a_stranger(mallory, _COMPONENT)
    if isinstance(llm, str):
        title("No language model")
        note(llm)
    elif llm is not None:
        title(f"Chat with the language model {llm.model or _SMALL}")
        async with _visitor(server, "juliet") as juliet:
            await scenes.talk(juliet, _COMPONENT)


def _llm(url: str | None, name: str | None) -> "LLM | str":
    """Return the model to talk with, or a sentence on why there is none and how to get one."""
    from component.config.llm import LLM  # noqa: PLC0415
    from component.models.local import build_local  # noqa: PLC0415
    from component.models.protocol import ModelRefusedError  # noqa: PLC0415

    try:
        if url is None or name is None:
            llm = LLM(
                provider="local",
                # Loading takes most of the time, so the text is short.
                context_tokens=_CONTEXT_TOKENS,
                max_tokens_per_request=_ANSWER_TOKENS,
                timeout_s=_MODEL_S,
            )
            build_local(llm, "llm")
        else:
            llm = LLM(provider="vllm", model=name, base_url=url)
    except ModelRefusedError as error:
        return f"{error}"
    return llm


def _settings(
    server: "DemoServer", secret: str, directory: Path, fixtures: bool, llm: "LLM | None"
) -> "Settings":
    from pydantic import SecretStr  # noqa: PLC0415

    from component import config  # noqa: PLC0415
    from component.app.features import make_settings  # noqa: PLC0415
    from component.config.agents import AgentEntry  # noqa: PLC0415
    from component.config.memory import Session  # noqa: PLC0415
    from component.config.work import Notifications  # noqa: PLC0415
    from component.features.watches.settings import WatchEntry, WatchLimits  # noqa: PLC0415

    watch = WatchEntry(
        name="news",
        service=_COMPONENT,
        node="news",
        principal=f"juliet@{_HOST}",
        skill="compose",
        params={"topic": "{text}"},
    )
    assistant = AgentEntry(
        name="assistant",
        identity="You are an assistant in a chat.",
        personality="Answer in one short sentence.",
        instructions="Use a tool when it helps.",
        skills=("time", "empty-folder", "trip-cost"),
        spawn=False,
    )
    return make_settings(
        server=config.Server(
            host=_ADDRESS,
            port=server.component_port,
            component_domain=_COMPONENT,
            component_secret=SecretStr(secret),
        ),
        agent=config.Agent(
            name="Demo agent",
            allowed_jids=tuple(f"{name}@{_HOST}" for name in ("juliet", "nurse", "you")),
            admins=(f"nurse@{_HOST}",),  # who may create nodes
        ),
        agents=() if llm is None else (assistant,),
        llm=llm,
        session=Session(history_tokens=_HISTORY_TOKENS),
        notifications=Notifications(quiet=""),  # notifications are sent at night, too
        watches=WatchLimits(check_s=1),  # the node is made while the demo runs
        watch=(watch,),
        skills=config.Skills(modules=("component.cli.demo_skills",)),
        storage=config.Storage(path=directory),
        conformance=config.Conformance(enabled=fixtures),
        # The conformance kit waits for this limit several times.
        limits=config.RequestLimits(inline_s=_JUDGED_INLINE_S)
        if fixtures
        else config.RequestLimits(),
    )


def _visitor(server: "DemoServer", account: str) -> "Visitor":
    from demo_server.visitor import Visitor  # noqa: PLC0415

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


def _invite(server: "DemoServer", *, talks: bool) -> None:
    from component.cli.demo_screen import title  # noqa: PLC0415

    title("The demo keeps running. Log in with your own client:")
    words = "and just chat: the model answers. You can also try /skills"
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
    click.echo("\nYou can also add the agent as a contact and see it online. Press Ctrl-C to exit.")


def names_of(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the skills of Python files and directories. Raises Fault."""
    from component.skill_directories.content import read_content  # noqa: PLC0415
    from component.skills import SkillLoadError, load_module, skills_of  # noqa: PLC0415
    from component.skills.manifest import ManifestError  # noqa: PLC0415

    found: list[str] = []
    try:
        for path in paths:
            if path.is_dir():
                found.append(read_content(path.absolute()).manifest.skill.name)
            else:
                found += [skill.name for skill in skills_of(load_module(path))]
    except (SkillLoadError, ManifestError) as error:
        raise Fault(str(error)) from error
    return tuple(found)


def with_skills(settings: "Settings", paths: Sequence[Path], names: Sequence[str]) -> "Settings":
    """Return the settings of a demonstration that offers these skills, too: those of Python files
    are trusted, and those of directories confined.
    """
    skills = settings.skills.model_copy(
        update={
            "modules": (*settings.skills.modules, *(str(one) for one in paths if one.is_file())),
            "directories": tuple(one for one in paths if one.is_dir()),
            "auto_approve": "confined",
        }
    )
    agents = tuple(
        one.model_copy(update={"skills": (*one.skills, *names)}) for one in settings.agents
    )
    return settings.model_copy(update={"skills": skills, "agents": agents})
