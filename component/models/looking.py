"""Checks whether the models of the settings are available, without spending a token."""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal

import anyio
import msgspec

from component import system
from component.models import ollama
from component.models.answer_limits import TooMuchError
from component.models.building import choices
from component.models.catalog import Target, resolve
from component.models.connecting import connect
from component.models.faults import read_fault
from component.models.local import build_local
from component.models.protocol import ModelRefusedError
from component.settings.llm import LLM, ModelChoice

_ANSWER_S: Final = 10.0
_REFUSED: Final = (401, 403)


class Looked(msgspec.Struct, frozen=True):
    """The result for one model; `section` is its section in the settings."""

    section: str
    verdict: Literal["ok", "warning", "failed"]
    text: str


class _Entry(msgspec.Struct):
    id: str = ""


class _Listed(msgspec.Struct):
    data: list[_Entry] = []


async def look(llm: LLM, own: Mapping[str, ModelChoice] = {}) -> AsyncIterator[Looked]:
    """Check each model: whether its dependencies are installed, it has a key, and the provider
    answers.

    Providers are asked which models they have. If one does not list them, any answer is enough.
    """
    for section, choice in choices(llm, own).items():
        try:
            if choice.provider == "local":
                yield _local(section, choice)
            else:
                yield await _remote(section, resolve(choice, section))
        except ModelRefusedError as error:
            yield Looked(section, "failed", str(error))


def _local(section: str, choice: ModelChoice) -> Looked:
    model = build_local(choice, section)
    text = f"{model.name} is there, with a context of {model.context_tokens:,} tokens"
    return Looked(section, "ok", text)


async def _remote(section: str, target: Target) -> Looked:
    client = (await system.in_thread(connect, target, "openai")).client
    import httpx2  # noqa: PLC0415 - loaded by now
    import openai  # noqa: PLC0415

    where = target.where
    headers = {name: value.get_secret_value() for name, value in target.choice.headers.items()}
    is_ollama = target.choice.provider == "ollama"
    path = "/models"
    if target.dialect == "messages":
        headers = {"x-api-key": where.key, "anthropic-version": "2023-06-01"} | headers
        path = "/models" if target.base_url.endswith("/v1") else "/v1/models"
    try:
        async with client:
            with anyio.fail_after(_ANSWER_S):
                response = await client.get(
                    path, cast_to=httpx2.Response, options={"headers": headers}
                )
                window = await ollama.context_of(client, target) if is_ollama else None
    except openai.APIStatusError as error:
        if error.status_code in _REFUSED:
            fault = read_fault(error.status_code, error.response.content)
            return Looked(section, "failed", str(where.error(fault)))
        return Looked(section, "ok", f"{where.url} answers, and does not tell its models")
    except (openai.APIConnectionError, TimeoutError):
        key = "host" if target.choice.host else "base_url"
        text = f"{where.url} cannot be reached: does it run, and is {section}.{key} right?"
        return Looked(section, "failed", text)
    except TooMuchError as error:
        return Looked(section, "failed", f"{where.url} sends {error}: is {section}.base_url right?")
    try:
        names = {each.id for each in msgspec.json.decode(response.content, type=_Listed).data}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        names = set()
    if not names:
        return Looked(section, "ok", f"{where.url} answers, and does not tell its models")
    # Ollama calls `llama3.2` what it lists as `llama3.2:latest`.
    if where.model in names or f"{where.model}:latest" in names:
        if is_ollama:
            return Looked(section, *ollama.verdict(target, window))
        return Looked(section, "ok", f"{where.url} answers, and has {where.model}")
    text = f"{where.url} answers, and does not list {where.model}: is {section}.model right?"
    return Looked(section, "warning", text)
