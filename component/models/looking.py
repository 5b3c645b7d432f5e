"""Whether the models of the settings can be had, found out without spending a token."""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal

import anyio
import msgspec

from component.models.answer_limits import TooMuchError
from component.models.building import choices
from component.models.catalog import Target, resolve
from component.models.faults import read_fault
from component.models.local import build_local
from component.models.openai_compatible import connect
from component.models.protocol import ModelRefusedError
from component.settings.llm import LLM, ModelChoice

_ANSWER_S: Final = 10.0
_REFUSED: Final = (401, 403)


class Looked(msgspec.Struct, frozen=True):
    """What was found of a model, and `section`, where it stands in the settings."""

    section: str
    verdict: Literal["ok", "warning", "failed"]
    text: str


class _Entry(msgspec.Struct):
    id: str = ""


class _Listed(msgspec.Struct):
    data: list[_Entry] = []


async def look(llm: LLM, own: Mapping[str, ModelChoice] = {}) -> AsyncIterator[Looked]:
    """Look at each model: is what it needs installed, is there a key, does the provider answer.

    A provider is asked which models it has. Some do not say; then it counts that they answer.
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
    model = build_local(choice)
    text = f"{model.name} is there, with a context of {model.context_tokens:,} tokens"
    return Looked(section, "ok", text)


async def _remote(section: str, target: Target) -> Looked:
    client = await anyio.to_thread.run_sync(connect, target)
    import httpx2  # noqa: PLC0415 - loaded by now
    import openai  # noqa: PLC0415

    where = target.where
    headers = {}
    if target.choice.provider == "anthropic":
        # Its list of models is no part of the interface that it shares with others.
        headers = {"x-api-key": where.key, "anthropic-version": "2023-06-01"}
    try:
        async with client:
            with anyio.fail_after(_ANSWER_S):
                response = await client.get(
                    "/models", cast_to=httpx2.Response, options={"headers": headers}
                )
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
        return Looked(section, "ok", f"{where.url} answers, and has {where.model}")
    text = f"{where.url} answers, and does not list {where.model}: is {section}.model right?"
    return Looked(section, "warning", text)
