"""What a refusal means, in the words of many servers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import ERROR_CHARACTERS
from component.models.faults import Fault, Where, read_fault
from component.models.protocol import (
    ContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
)
from xep.characters import without_forbidden

WHERE = Where("m", "http://models.example/v1", "llm", "sk-very-secret")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000"),
        (400, "request (9412 tokens) exceeds the available context size (8192 tokens), try"),
        (400, "the request exceeds the available context size. try increasing the context size"),
        (500, "Context size has been exceeded."),
        (400, "prompt is too long: 208310 tokens > 200000 maximum"),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        (400, "input length exceeds maximum context length"),
        (500, "prompt too long; exceeded max context length by 4 tokens"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed"),
        (400, "Prompt has 40000 tokens, too large for model with 32768 maximum context length"),
        (400, "Please reduce the length of the messages or completion."),
        (400, "The prompt (total length 25938) is too long to fit into the model (context length"),
        (400, "The decoder prompt (length 9001) is longer than the maximum model length of 8192"),
        (400, "Input is too long for requested model."),
        (413, "Request too large for model"),
        (400, "`inputs` tokens + `max_new_tokens` must be <= 4097"),
        (400, "The number of tokens to keep is greater than the context length"),
    ],
)  # fmt: skip
def test_too_long(status: int, message: str) -> None:
    assert isinstance(WHERE.error(Fault(status, message)), ContextOverflowError)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(429, "Too many tokens per minute, reduce the length"), ModelUnavailableError),
        (Fault(429, "Rate limit reached for m in context of tokens"), ModelUnavailableError),
        (Fault(400, "max_tokens is too large: 100000. This model supports at most 16384"
               " completion tokens"), ModelRefusedError),
        (Fault(404, "The context window tool was not found"), ModelRefusedError),
        (Fault(529, "Overloaded"), ModelUnavailableError),
        (Fault(0, "upstream"), ModelUnavailableError),
        (Fault(429, "You exceeded your current quota, please check your plan"), ModelRefusedError),
        (Fault(400, "Your credit balance is too low to access the API"), ModelRefusedError),
        (Fault(418, "I'm a teapot"), ModelRefusedError),
    ],
)  # fmt: skip
def test_other_things(fault: Fault, kind: type[ModelError]) -> None:
    assert type(WHERE.error(fault)) is kind


@given(st.integers(0, 599), st.binary() | st.text().map(str.encode))
def test_any_body_is_read(status: int, body: bytes) -> None:
    WHERE.error(read_fault(status, body))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "detail", "metadata", "raw"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.integers(0, 599), JSON)
def test_any_json_is_read(status: int, body: object) -> None:
    WHERE.error(read_fault(status, json.dumps(body).encode()))


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":' * 50_000,
        b'{"error":{"message":' + b"9" * 5000 + b"}}",
        b'{"error":{"message":' + b"[" * 900 + b"]" * 900 + b"}}",
        b'{"error":{"message":NaN,"code":1e999}}',
    ],
)
def test_what_cannot_be_decoded_is_read_all_the_same(body: bytes) -> None:
    assert isinstance(WHERE.error(read_fault(503, body)), ModelUnavailableError)


@pytest.mark.parametrize("said", [b"\\ud800 \\u0000", b"\xff\x1b[2J\x00"])
def test_a_message_has_no_character_that_cannot_be_stored(said: bytes) -> None:
    fault = read_fault(400, b'{"error":{"message":"' + said + b'"}}')
    assert fault.message == without_forbidden(fault.message)
    assert "\ufffd" in fault.message


def test_of_a_long_message_the_beginning_is_looked_at() -> None:
    fault = read_fault(400, json.dumps({"error": {"message": "x" * 60_000}}).encode())
    assert len(fault.message) == ERROR_CHARACTERS


@given(st.integers(0, 599), st.text(), st.text())
def test_the_key_is_never_said(status: int, before: str, after: str) -> None:
    error = WHERE.error(Fault(status, f"{before}{WHERE.key}{after}"))
    assert WHERE.key not in str(error)


def test_a_long_message_is_cut_and_on_one_line() -> None:
    said = str(WHERE.error(Fault(400, "what\n" * 500)))
    assert len(said) < 500
    assert "\n" not in said
