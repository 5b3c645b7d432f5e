"""Checks whether the models of the settings are available, without spending a token."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, TypeAlias

import anyio
import msgspec

from component import system
from component.config.llm import LLM, ModelChoice
from component.models.answer_limits import TooMuchError
from component.models.building import choices
from component.models.catalog import ModelTarget, facts_of, resolve
from component.models.connection import (
    ModelConnection,
    StatusError,
    UnreachableError,
    connect_model,
)
from component.models.faults import read_fault
from component.models.local import build_local
from component.models.protocol import ModelRefusedError

# Ollama cuts the beginning off a prompt that is longer than its context, without an error. Its API
# tells the size: `POST /api/show` what the Modelfile sets, `GET /api/ps` what a loaded model has
# (https://docs.ollama.com/api).

_LEAST: Final = 4096
"""The context that Ollama gives a model on a machine with little memory."""
_NUM_CTX: Final = re.compile(r"^\s*num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


class _Shown(msgspec.Struct):
    parameters: str = ""


class _Loaded(msgspec.Struct):
    model: str = ""
    context_length: int = 0


class _Running(msgspec.Struct):
    models: list[_Loaded] = []


async def _ollama_context(connection: ModelConnection, target: ModelTarget) -> int | None:
    """The context of the model in tokens; None if Ollama decides that when it loads the model."""
    model, api = target.choice.model, connection.url.copy_with(path="/api/")
    try:
        answer = await connection.send("GET", api.join("ps"))
        for loaded in msgspec.json.decode(answer.content, type=_Running).models:
            if loaded.model in (model, f"{model}:latest") and loaded.context_length > 0:
                return loaded.context_length
        asked = msgspec.json.encode({"model": model})
        answer = await connection.send("POST", api.join("show"), asked)
        found = _NUM_CTX.search(msgspec.json.decode(answer.content, type=_Shown).parameters)
    except (UnreachableError, StatusError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


_Verdict: TypeAlias = tuple[Literal["ok", "warning", "failed"], str]


def _ollama_verdict(target: ModelTarget, context: int | None) -> _Verdict:
    """Whether the context is as large as the settings say."""
    where, wanted = target.where, facts_of(target).context_tokens
    setting = f"{where.section}.context_tokens"
    text = f"{where.url} answers, and has {where.model}"
    if context is None and wanted > _LEAST:
        return "warning", (
            f"{text}, but does not say how large its context is before it is loaded. {setting} is"
            f" {wanted:,}: start Ollama with OLLAMA_CONTEXT_LENGTH={wanted}, or set num_ctx in a"
            " Modelfile"
        )
    text += f" with a context of {context or wanted:,} tokens"
    if context is None or context == wanted:
        return "ok", text
    if context < wanted:
        return "warning", (
            f"{text}, but {setting} is {wanted:,}: it would cut prompts. Start Ollama with"
            f" OLLAMA_CONTEXT_LENGTH={wanted}, set num_ctx in a Modelfile, or lower {setting}"
        )
    return "ok", f"{text}, of which {wanted:,} are used: set {setting} = {context} to use all"


_ANSWER_S: Final = 10.0
_REFUSED: Final = (401, 403)


class ModelCheck(msgspec.Struct, frozen=True):
    """The result for one model; `section` is its section in the settings."""

    section: str
    verdict: Literal["ok", "warning", "failed"]
    text: str


class _Entry(msgspec.Struct):
    id: str = ""


class _Listed(msgspec.Struct):
    data: list[_Entry] = []


async def check_models(llm: LLM, own: Mapping[str, ModelChoice] = {}) -> AsyncIterator[ModelCheck]:
    """Check each model: whether its dependencies are installed, it has a key, and the provider
    answers.

    Providers are asked which models they have. If one does not list them, any answer is enough.
    """
    for section, choice in choices(llm, own).items():
        try:
            if choice.provider == "local":
                yield ModelCheck(section, "ok", _local(section, choice))
            else:
                yield ModelCheck(section, *await _remote(resolve(choice, section)))
        except ModelRefusedError as error:
            yield ModelCheck(section, "failed", str(error))


def _local(section: str, choice: ModelChoice) -> str:
    model = build_local(choice, section)
    return f"{model.name} is there, with a context of {model.context_tokens:,} tokens"


async def _remote(target: ModelTarget) -> _Verdict:
    where, section = target.where, target.where.section
    is_ollama = target.choice.provider == "ollama"
    is_below = target.dialect == "messages" and not target.base_url.endswith("/v1")
    path = "/v1/models" if is_below else "/models"
    connection = await system.in_thread(connect_model, target, path)
    try:
        async with connection.client:
            with anyio.fail_after(_ANSWER_S):
                response = await connection.send("GET", connection.url)
                window = await _ollama_context(connection, target) if is_ollama else None
    except StatusError as error:
        if error.status in _REFUSED:
            return "failed", str(where.error(read_fault(error.status, error.body)))
        return "ok", f"{where.url} answers, and does not tell its models"
    except (UnreachableError, TimeoutError):
        key = "host" if target.choice.host else "base_url"
        return (
            "failed",
            f"{where.url} cannot be reached: does it run, and is {section}.{key} right?",
        )
    except TooMuchError as error:
        return "failed", f"{where.url} sends {error}: is {section}.base_url right?"
    try:
        names = {each.id for each in msgspec.json.decode(response.content, type=_Listed).data}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        names = set()
    if not names:
        return "ok", f"{where.url} answers, and does not tell its models"
    # Ollama calls `llama3.2` what it lists as `llama3.2:latest`.
    if where.model in names or f"{where.model}:latest" in names:
        if is_ollama:
            return _ollama_verdict(target, window)
        return "ok", f"{where.url} answers, and has {where.model}"
    return (
        "warning",
        f"{where.url} answers, and does not list {where.model}: is {section}.model right?",
    )
