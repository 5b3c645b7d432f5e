"""Reads the context size of a model in Ollama, which its OpenAI-compatible API does not have.

Ollama cuts the beginning off a prompt that is longer, without an error. Its own API tells the size:
`POST /api/show` what the Modelfile sets, `GET /api/ps` what a loaded model has
(https://docs.ollama.com/api).
"""

import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from component.models.catalog import Target, facts_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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


async def context_of(client: "AsyncOpenAI", target: Target) -> int | None:
    """The context of the model in tokens; None if Ollama decides that when it loads the model."""
    import httpx2  # noqa: PLC0415 - loaded by now
    import openai  # noqa: PLC0415

    model, root = target.choice.model, target.base_url.removesuffix("/v1")
    try:
        answer = await client.get(f"{root}/api/ps", cast_to=httpx2.Response)
        for loaded in msgspec.json.decode(answer.content, type=_Running).models:
            if loaded.model in (model, f"{model}:latest") and loaded.context_length > 0:
                return loaded.context_length
        answer = await client.post(
            f"{root}/api/show", cast_to=httpx2.Response, body={"model": model}
        )
        found = _NUM_CTX.search(msgspec.json.decode(answer.content, type=_Shown).parameters)
    except (openai.APIError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


def verdict(target: Target, context: int | None) -> tuple[Literal["ok", "warning"], str]:
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
    if context is not None and context < wanted:
        return "warning", (
            f"{text} with a context of {context:,} tokens, but {setting} is {wanted:,}: it would"
            f" cut prompts. Start Ollama with OLLAMA_CONTEXT_LENGTH={wanted}, set num_ctx in a"
            f" Modelfile, or lower {setting}"
        )
    if context is not None and context > wanted:
        return "ok", (
            f"{text} with a context of {context:,} tokens, of which {wanted:,} are used: set"
            f" {setting} = {context} to use all"
        )
    return "ok", f"{text} with a context of {wanted:,} tokens"
