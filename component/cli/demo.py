"""`xmpp-agent demo`: a server, the component and a client on this machine, and what they say."""

import contextlib
import errno
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component import system
from component.cli.frame import Fault, Interrupted

if TYPE_CHECKING:
    from component.app.service import Service
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
_INTRODUCTION = f"""
An XMPP server and an agent run on this machine, and nowhere else. Juliet is a person with an
ordinary chat client. You see how she and the agent at {_COMPONENT} talk: a chat, what her client
finds out about the agent's skills, two of them at work, one only after she has allowed it, and a
reminder."""
_PASSWORD = "demo"  # noqa: S105 - printed for everybody, on loopback only


@click.command()
@click.option("--once", is_flag=True, help="Exit after the demonstration.")
@click.option("--xml", is_flag=True, help="Show more, and each stanza that is sent and received.")
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
    once: bool, xml: bool, port: int, backend: str, own: tuple[Path, ...], **options: Any
) -> None:
    """Run a demonstration on this machine, with a built-in XMPP server.

    A person chats with a very small language model on this machine. Her client discovers the
    agent's skills and executes them, one of them after a confirmation, and a reminder arrives. With
    --xml there are more scenes, with the XML that is sent and received. Then the demo keeps
    running, so that you can log in with your own client and chat with the agent.

    \b
    Examples:
      xmpp-agent demo
      xmpp-agent demo --once --xml | less
      xmpp-agent demo --model-url http://localhost:11434/v1 --model llama3.2
      xmpp-agent demo --no-model --skills ./weather
    """
    if (options["model_url"] is None) != (options["model"] is None):
        raise click.UsageError("--model-url and --model must be given together.")
    import anyio  # noqa: PLC0415 - --help needs none of it

    from component import logs  # noqa: PLC0415

    try:
        from demo_server.visitor import VisitError  # noqa: PLC0415
    except ImportError as error:  # the message says how to install the extra
        raise Fault(str(error)) from None

    logs.configure("warning", "human")
    llm = None
    if not (options["no_model"] or options["fixtures"]):
        llm = _llm(options["model_url"], options["model"])
    interrupted = False
    try:
        plan = _Plan(once, xml, port, options["fixtures"], llm, own)
        anyio.run(_show, plan, backend=backend)
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


@dataclass(frozen=True)
class _Plan:
    """What the options ask for. A text instead of a model says why there is none."""

    once: bool
    xml: bool
    port: int
    fixtures: bool
    llm: "LLM | str | None"
    own: Sequence[Path]

    @property
    def model(self) -> "LLM | None":
        """The model, if there is one."""
        return None if isinstance(self.llm, str) else self.llm


async def _show(plan: _Plan) -> None:
    """Run all scenes, or none with skills of the user."""
    import anyio  # noqa: PLC0415

    from component.cli.demo_screen import note, paragraph, title  # noqa: PLC0415

    names = names_of(plan.own)
    if not plan.own:
        paragraph(_INTRODUCTION)
        click.echo()
    async with _running(plan, names) as (server, service):
        title(f"A server for {_HOST} and the component {_COMPONENT} are running.")
        if plan.own:
            lost = [name for name in names if service.catalog.registry.get(name) is None]
            if lost:
                note(f"not offered, for the reason in the log: {', '.join(lost)}")
            else:
                note(f"your skills are offered: {', '.join(names)}")
        else:
            if isinstance(plan.llm, str):
                note(f"without a language model: {plan.llm}")
            await (_show_xml if plan.xml else _show_conversation)(server, plan.model)
        if not plan.once:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                _invite(server, plan)
                await anext(signals)
            click.echo("\nGood-bye.")


@contextlib.asynccontextmanager
async def _running(
    plan: _Plan, names: Sequence[str]
) -> AsyncIterator[tuple["DemoServer", "Service"]]:
    """Run the server, and the service, which is connected within the block."""
    import anyio  # noqa: PLC0415

    from component.app.service import Service  # noqa: PLC0415
    from component.cli.demo_screen import spinner  # noqa: PLC0415
    from demo_server.server import DemoServer  # noqa: PLC0415

    secret = system.token_urlsafe(16)
    server = DemoServer(
        _HOST,
        _ADDRESS,
        c2s_port=_free_or_any(plan.port),
        accounts=dict.fromkeys(("juliet", "mallory", "nurse", "you"), _PASSWORD),
        components={_COMPONENT: secret},
    )
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-demo-") as directory:
        async with server, anyio.create_task_group() as tasks:
            async with spinner("starting a server and an agent"):
                settings = _settings(server, secret, Path(directory), plan)
                service = Service(with_skills(settings, plan.own, names))
                await tasks.start(service.run)
                with anyio.fail_after(10):
                    await service.established.wait()
            yield server, service
            service.stop()


async def _show_conversation(server: "DemoServer", llm: "LLM | None") -> None:
    from component.cli.demo_tour import tour  # noqa: PLC0415

    if llm is not None:
        _introduce(llm)
    async with _visitor(server, "juliet") as juliet:
        await tour(juliet, _COMPONENT, talks=llm is not None)


async def _show_xml(server: "DemoServer", llm: "LLM | None") -> None:
    from component.cli import demo_scenes as scenes  # noqa: PLC0415

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
    if llm is not None:
        _introduce(llm)
        async with _visitor(server, "juliet") as juliet:
            await scenes.talk(juliet, _COMPONENT)


def _introduce(llm: "LLM") -> None:
    from component.cli.demo_screen import note, title  # noqa: PLC0415

    title(f"Chat with the language model {llm.model or _SMALL}")
    if not llm.model:
        note("it shows that the parts work together: what it says is often wrong")


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


def _settings(server: "DemoServer", secret: str, directory: Path, plan: _Plan) -> "Settings":
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
        agents=() if plan.model is None else (assistant,),
        llm=plan.model,
        session=Session(history_tokens=_HISTORY_TOKENS),
        notifications=Notifications(quiet=""),  # notifications are sent at night, too
        watches=WatchLimits(check_s=1),  # the node is made while the demo runs
        watch=(watch,),
        skills=config.Skills(modules=("component.cli.demo_skills",)),
        storage=config.Storage(path=directory),
        conformance=config.Conformance(enabled=plan.fixtures),
        # The conformance kit waits for this limit several times.
        limits=config.RequestLimits(inline_s=_JUDGED_INLINE_S)
        if plan.fixtures
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


def _invite(server: "DemoServer", plan: _Plan) -> None:
    from component.cli.demo_screen import paragraph, title  # noqa: PLC0415

    title("The demo keeps running. Log in with your own client:")
    write = "and just chat: the model answers. Try /skills" if plan.model else "such as: /skills"
    rows = (
        ("account", f"you@{_HOST}"),
        ("password", _PASSWORD),
        ("server", f"{_ADDRESS}, port {server.c2s_port}, STARTTLS"),
        ("trust", f"the authority in {server.ca_file},"),
        ("", "or accept the certificate"),
        ("write to", f"{_COMPONENT}, {write}"),
        ("run", "a skill from your client's menu of commands; empty-folder asks first"),
    )
    for name, value in rows:
        click.echo(f"  {click.style(f'{name:<9}', bold=True)} {value}")
    click.echo()
    further = "" if plan.xml or plan.own else "With --xml this shows what goes over the wire. "
    paragraph(
        f"{further}To attach an agent to a server of your own, run `xmpp-agent init`; to write a"
        " skill, `xmpp-agent skills new`. Press Ctrl-C to exit."
    )


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
