"""What `xmpp-agent doctor` looks at of agents: what they remember, who they are, what watches."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from anyio import to_thread

from component.memory import files
from component.memory.paths import Layout
from component.memory.personas import Personas
from component.memory.sharing import Sharing
from component.memory.texts import Texts
from component.memory.vectors import LocalEmbedder
from component.metrics.http import ListenError, Server
from component.metrics.traces import TracesError, make_tracer
from component.policy import PolicyError
from component.policy.globs import pattern
from component.service import DEFAULT_AGENT, SOFTWARE, load_skills
from component.service.options import limited_in_usd, own_models
from component.service.remembering import named
from component.settings import Settings
from component.settings.memory import MemoryScope
from component.skills import DuplicateSkillError, SkillLoadError
from component.storage import StorageError
from xep.jid import JID

Verdict = Literal["ok", "warning", "failed"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at: its name, how it stands, and what there is to say."""

    name: str
    verdict: Verdict
    text: str


async def check_agents(settings: Settings) -> AsyncIterator[Check]:
    """The memory; and of agents and personas what is wrong."""
    memory = await _memory(settings)
    yield memory
    for check in (*_agents(settings), *_budgets(settings)):
        yield check
    if memory.verdict != "failed" and settings.llm is not None:
        async for check in _personas(settings):
            yield check


async def check_watching(settings: Settings) -> AsyncIterator[Check]:
    """What is to be watched from outside, where that is set. The service must not run meanwhile."""
    for found in (await _metrics(settings), await _traces(settings)):
        if found is not None:
            yield found


async def _memory(settings: Settings) -> Check:
    root = settings.memory_path
    try:
        sharing = Sharing(Layout(root), settings.memory.scopes)
        await to_thread.run_sync(_write, root)
        if settings.memory.vectors == "local":
            await to_thread.run_sync(LocalEmbedder)
    except PolicyError as error:
        return Check("memory", "failed", str(error))
    except files.MemoryStoreError as error:
        return Check("memory", "failed", f"{error} {named(settings)}")
    except StorageError as error:
        return Check("memory", "failed", str(error))
    if blind := "\n".join(_blind(sharing, settings.memory.scopes)):
        return Check("memory", "warning", blind)
    return Check("memory", "ok", f"{root} can be written to")


def _write(root: Path) -> None:
    opened = files.open_root(root)
    with files.explained(root, "written to"), tempfile.TemporaryFile(dir=opened):
        pass


def _blind(sharing: Sharing, scopes: tuple[MemoryScope, ...]) -> Iterator[str]:
    """Writers of scopes who see nothing of them."""
    for scope in scopes:
        for writer in scope.writers or ():
            if (
                writer != "*"
                and sharing.place(scope.name, DEFAULT_AGENT, JID.parse(writer)) is None
            ):
                yield (
                    f"{writer} is among the writers of the scope {scope.name} and not among its"
                    " members, so it can store nothing there: add it to members"
                )


def _agents(settings: Settings) -> Iterator[Check]:
    if settings.speechless is not None:
        yield Check("agents", "warning", settings.speechless)
    try:
        names = [skill.name for skill in load_skills(settings)]
    except (SkillLoadError, DuplicateSkillError):
        return  # told already
    for entry in settings.agents:
        for glob in entry.skills:
            if glob != "*" and not any(map(pattern((glob,)).fullmatch, names)):
                text = f"{glob!r} among the skills of {entry.name} is the name of no skill"
                yield Check("agents", "warning", f"{text}: `xmpp-agent skills list` shows them")


def _budgets(settings: Settings) -> Iterator[Check]:
    """Budgets in US dollars that hold for some models only, and those in which not even one call
    fits: before each the longest answer is set aside.
    """
    if settings.llm is None:
        return
    if limited_in_usd(settings):
        # Who has no model need not load what knows their prices.
        from component.models.building import unpriced  # noqa: PLC0415

        for section in unpriced(settings.llm, own_models(settings)):
            yield Check(
                "budgets",
                "warning",
                f"the price of the model of {section} is not known, so budgets in US dollars do not"
                f" hold for it: set {section}.usd_per_million_in and usd_per_million_out",
            )
    most = settings.llm.max_tokens_per_request
    budgets = settings.budgets
    named = {
        "budgets.per_principal": budgets.per_principal,
        "budgets.per_task": budgets.per_task,
        "budgets.total": budgets.total,
    } | {f"the budget of {entry.name}": entry.budget for entry in settings.agents}
    for name, budget in named.items():
        if budget.tokens is not None and budget.tokens <= most:
            yield Check(
                "budgets",
                "warning",
                f"{name} has {budget.tokens:,} tokens, and each call sets aside up to {most:,} for"
                " its answer, so no model will be called: give it more, or lower"
                " llm.max_tokens_per_request",
            )


async def _personas(settings: Settings) -> AsyncIterator[Check]:
    if settings.personas.allow_sharing and not settings.personas.allow_user_personas:
        text = "personas.allow_sharing does nothing as long as personas.allow_user_personas is off"
        yield Check("personas", "warning", text)
    layout = Layout(settings.memory_path)
    personas = Personas(layout, Texts(layout.root), settings.personas)
    wanted = {f"persona of {entry.name}": entry.persona for entry in settings.agents}
    wanted["personas.default"] = settings.personas.default
    said = {name: f"{key} is {name!r}, which" for key, name in wanted.items() if name}
    try:
        for name in await to_thread.run_sync(_packages, layout.personas):
            said.setdefault(name, f"the persona {name!r}")
        for name, which in said.items():
            why = await personas.fault(name)
            if why is not None:
                text = f"{which} cannot be used; nobody will have it. {why}"
                yield Check("personas", "warning", text)
    except StorageError as error:
        yield Check("personas", "warning", str(error))


def _packages(folder: Path) -> list[str]:
    with files.explained(folder, "read"):
        try:
            return sorted(each.name for each in folder.iterdir() if each.is_dir())
        except FileNotFoundError:
            return []


async def _metrics(settings: Settings) -> Check | None:
    if settings.metrics.address is None:
        return None
    host, port = settings.metrics.address
    found = Check("metrics", "ok", f"{host} port {port} can be listened on")
    try:
        async with anyio.create_task_group() as group:
            await group.start(Server(host, port, {}).run)
            group.cancel_scope.cancel()
    except* ListenError as errors:
        found = Check("metrics", "failed", str(errors.exceptions[0]))
    return found


async def _traces(settings: Settings) -> Check | None:
    traces = settings.traces
    if not traces.endpoint:
        return None
    try:
        tracer = make_tracer(traces.endpoint, "", traces.sample, SOFTWARE)
    except TracesError as error:
        return Check("traces", "failed", str(error))
    await tracer.close()
    return Check("traces", "ok", f"{traces.endpoint} is where they are sent; it was not asked")
