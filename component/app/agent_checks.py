"""The checks of `xmpp-agent doctor` about agents: memory, personas, budgets and traces."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from component import DEFAULT_AGENT, system
from component.config import Settings
from component.config.memory import MemoryScope
from component.features.memory_nodes.items import Cipher, KeyRefusedError
from component.kernel.check import Check
from component.kernel.memory import location_hint
from component.kernel.options import SOFTWARE, limited_in_usd, own_models
from component.memory.embedding import LocalEmbedder
from component.memory.sharing import Sharing
from component.memory.store import missing_sentence
from component.memory.sync_state import SyncStates
from component.memory_directory import files
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import Texts
from component.metrics.traces import TracesError, make_tracer
from component.personas.personas import Personas
from component.policy import PolicyError
from component.store import StorageError
from xep.jid import JID


async def check_agents(settings: Settings) -> AsyncIterator[Check]:
    """Check the memory, and report mistakes in agents and personas."""
    memory = await _memory(settings)
    yield memory
    if settings.speechless is not None:
        yield Check("agents", "warning", settings.speechless)
    for check in _budgets(settings):
        yield check
    if memory.verdict != "failed" and settings.llm is not None:
        async for check in _personas(settings):
            yield check


async def _memory(settings: Settings) -> Check:
    root = settings.memory_path
    try:
        sharing = Sharing(Layout(root), settings.memory.scopes)
        await system.in_thread(_write, root)
        if keys := settings.memory.encryption_keys:
            Cipher(tuple(key.get_secret_value() for key in keys))
    except (PolicyError, KeyRefusedError) as error:
        return Check("memory", "failed", str(error))
    except files.MemoryStoreError as error:
        return Check("memory", "failed", f"{error} {location_hint(settings)}")
    except StorageError as error:
        return Check("memory", "failed", str(error))
    warnings = list(_blind(sharing, settings.memory.scopes))
    if settings.memory.store != "files":
        held = await SyncStates(Layout(root)).held()
        warnings += [missing_sentence(whose, count) for whose, count in held.items()]
    if settings.memory.vectors == "local":
        warnings += await system.in_thread(_vectors)
    if warnings:
        return Check("memory", "warning", "\n".join(warnings))
    return Check("memory", "ok", f"{root} can be written to")


def _vectors() -> list[str]:
    """Why memories are not found by their meaning, if they are not."""
    try:
        embedder = LocalEmbedder()
        try:
            embedder.check()
        finally:
            embedder.close()
    except StorageError as error:
        return [str(error)]
    return []


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
                and sharing.place(scope.name, SessionKey(DEFAULT_AGENT, JID.parse(writer))) is None
            ):
                yield (
                    f"{writer} is among the writers of the scope {scope.name} and not among its"
                    " members, so it can store nothing there: add it to members"
                )


def _budgets(settings: Settings) -> Iterator[Check]:
    """Check for budgets in US dollars that apply to some models only, and for budgets that are too
    small for a single call, since the cost of the longest answer is reserved before each.
    """
    if settings.llm is None:
        return
    if limited_in_usd(settings):
        # Imported only if there are models with prices.
        from component.models.building import unpriced  # noqa: PLC0415

        for section in unpriced(settings.llm, own_models(settings)):
            yield Check(
                "budgets",
                "warning",
                f"the price of the model in {section} is unknown, so budgets in US dollars do not"
                f" limit it: set {section}.usd_per_million_in and usd_per_million_out",
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
                f"{name} has {budget.tokens:,} tokens, but each call reserves up to {most:,} for"
                " its answer, so no model will be called: increase the budget, or lower"
                " llm.max_tokens_per_request",
            )


async def _personas(settings: Settings) -> AsyncIterator[Check]:
    if settings.personas.allow_sharing and not settings.personas.allow_user_personas:
        text = "personas.allow_sharing has no effect while personas.allow_user_personas is false"
        yield Check("personas", "warning", text)
    layout = Layout(settings.memory_path)
    approved = settings.proposals_path is not None
    personas = Personas(layout, Texts(layout.root), settings.personas, approved=approved)
    wanted = {f"persona of {entry.name}": entry.persona for entry in settings.agents}
    wanted["personas.default"] = settings.personas.default
    said = {name: f"{key} is {name!r}, which" for key, name in wanted.items() if name}
    try:
        for name in await system.in_thread(_packages, layout.personas):
            said.setdefault(name, f"the persona {name!r}")
        for name, which in said.items():
            why = await personas.fault(name)
            if why is not None:
                text = f"{which} cannot be used. {why}"
                yield Check("personas", "warning", text)
    except StorageError as error:
        yield Check("personas", "warning", str(error))


def _packages(folder: Path) -> list[str]:
    with files.explained(folder, "read"):
        try:
            return sorted(each.name for each in folder.iterdir() if each.is_dir())
        except FileNotFoundError:
            return []


async def check_traces(settings: Settings) -> Check | None:
    """Check traces, if they are configured."""
    traces = settings.traces
    if not traces.endpoint:
        return None
    try:
        tracer = make_tracer(traces, SOFTWARE)
    except TracesError as error:
        return Check("traces", "failed", str(error))
    await tracer.close()
    return Check(
        "traces", "ok", f"{traces.endpoint} is where traces are sent; it was not contacted"
    )
