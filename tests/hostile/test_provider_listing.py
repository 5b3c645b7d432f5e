"""What `doctor` asks a provider is bounded as its answers are."""

import gzip
from typing import Any

import pytest

from component.config.llm import LLM
from component.models.availability import check_models
from tests.hostile.provider import Attack, body, chunked, head, provider_in_thread

pytestmark = pytest.mark.anyio

_FLOOD = "".join(f"X-{number}: x\r\n" for number in range(3000)).encode()
_ENTRY = b'{"data":[{"id":"m"}]}'


def endless(first: bytes, unit: bytes) -> Attack:
    def play() -> Any:
        yield first
        while True:
            yield unit

    return play


@pytest.mark.parametrize(
    ("attack", "verdict", "text"),
    [
        (endless(head("application/json") + chunked(b'{"data":['), chunked(b"{}," * 20_000)),
         "failed", "sends an answer of more than 4,194,304 bytes"),
        (endless(head("application/json", 500), chunked(b"x" * 60_000)), "ok", "does not tell"),
        (endless(head("application/json", 401), chunked(b"x" * 60_000)), "failed", "the key"),
        (lambda: iter([body(gzip.compress(_ENTRY), headers={"Content-Encoding": "gzip"})]),
         "failed", "encoded as 'gzip'"),
        (lambda: iter([body(_ENTRY).replace(b"\r\n", b"\r\n" + _FLOOD, 1)]),
         "failed", "more than 256 header fields"),
        (lambda: iter([body(b'{"data":' * 100_000)]), "ok", "does not tell"),
        (lambda: iter([body(b'{"data":[{"id":"\xff"}]}')]), "ok", "does not tell"),
        (lambda: iter([body(_ENTRY)]), "ok", "has m"),
    ],
)  # fmt: skip
async def test_a_list_of_models(attack: Attack, verdict: str, text: str) -> None:
    with provider_in_thread({"None": attack}) as provider:
        llm = LLM(provider="openai", model="m", base_url=provider.url)
        (found,) = [each async for each in check_models(llm)]
    assert found.verdict == verdict
    assert text in found.text
