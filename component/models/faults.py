"""What a provider's refusal means: whether to ask again, with less, or not at all.

Providers agree on the status codes and on little else; what they write is read tolerantly.
"""

import json
import re
from typing import Any

import msgspec

from component.models.answer_limits import ERROR_CHARACTERS
from component.models.protocol import (
    ContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    UnusableAnswerError,
)
from component.models.tolerant_json import BadJSONError, decode_any
from xep.characters import without_forbidden

_PASSING = {408, 409, 425, 429}
_OVERFLOW_CODES = {
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",
    "request_too_large",
    "string_above_max_length",
}
# One alternative for each way it is said: OpenAI, OpenRouter and vLLM; llama.cpp; Anthropic;
# Ollama; Gemini; Mistral; Groq; and what they wrote before.
_OVERFLOW = re.compile(
    r"maximum context length|context_length_exceeded|exceed_context_size"
    r"|exceeds?( the)?( available| maximum| model'?s?)*( input)? context"
    r"|context (size|length|window|limit)\b.{0,40}\b(exceed|overflow|too (small|long|large))"
    r"|exceed(ed|s)? (the )?(max(imum)? )?context (limit|length|size|window)"
    r"|(longer|larger|greater) than the (maximum )?(model|context)('s)? (length|size|window)"
    r"|(prompt|input|request) (\([^)]{0,60}\) )?is too (long|large)\b|prompt too long"
    r"|(input )?token count.{0,60}exceeds|too many (input )?tokens\b(?! per)"
    r"|reduce the length of (the|your|either)|tokens? \+ .{0,40}must be <=",
    re.IGNORECASE | re.DOTALL,
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](quota|credits|balance|funds)|exceeded your current quota"
    r"|billing[_ ](hard[_ ]limit|not[_ ]active)|credit balance is too low|payment required",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(
    r"unsupported|unrecognized|unknown|unexpected|not (be )?(supported|permitted|allowed)"
    r"|does ?n[o']t support|extra (inputs|fields)|deprecated",
    re.IGNORECASE,
)


class Fault(msgspec.Struct, frozen=True):
    """What a provider said instead of an answer. `status` is 0 where it came in the stream."""

    status: int
    message: str = ""
    code: str = ""

    @property
    def overflow(self) -> bool:
        """Whether question and answer were too long."""
        if self.status in (401, 402, 403, 404, 429):
            return False
        return (
            self.status == 413
            or self.code in _OVERFLOW_CODES
            or bool(_OVERFLOW.search(self.message))
        )

    @property
    def unpaid(self) -> bool:
        """Whether waiting does not help, for there is no money left."""
        return self.status == 402 or bool(
            _NO_MONEY.search(self.code) or _NO_MONEY.search(self.message)
        )

    @property
    def passing(self) -> bool:
        """Whether the same request may be answered later."""
        if self.overflow or self.unpaid:
            return False
        return self.status in _PASSING or self.status >= 500 or self.status == 0

    def blames(self, parameter: str) -> bool:
        """Whether the provider does not take this parameter of the request."""
        return (
            self.status in (400, 422)
            and parameter in self.message
            and bool(_UNKNOWN.search(self.message) or _UNKNOWN.search(self.code))
            and not self.overflow
        )


def read_fault(status: int, said: bytes) -> Fault:
    """Read what came with a status of 400 and more, or as an error in a stream; anything goes.

    Of a message `ERROR_CHARACTERS` are looked at, without characters that nothing can carry.
    """
    try:
        body = decode_any(said)
    except BadJSONError:
        text = said.decode(errors="replace").strip()
        # A page of a proxy says nothing to anybody.
        return Fault(status, "" if text.startswith("<") else without_forbidden(text[:500]))
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return Fault(status, _text(body))
    error = body.get("error") or body
    if not isinstance(error, dict):
        return Fault(status, _text(error))
    message = _text(error.get("message") or body.get("detail") or body.get("message"))
    code = error.get("code")
    if not isinstance(code, str):
        # A number is a status, which a stream has nowhere else.
        if isinstance(code, int) and not status and 400 <= code < 600:
            status = code
        code = error.get("type")
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        message = f"{message}: {_text(metadata['raw'])}"
    return Fault(status, message, _text(code) if isinstance(code, str) else "")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, separators=(",", ":"))
        except (ValueError, RecursionError):  # an integer too long to write, or nested too deeply
            return ""
    return without_forbidden(value[:ERROR_CHARACTERS])


class Where(msgspec.Struct, frozen=True):
    """What the sentences of an error name: the model, its address, its section of the settings.

    `key` is the provider's, so that it can be taken out of what the provider writes.
    """

    model: str
    url: str
    section: str
    key: str = ""

    def error(self, fault: Fault, retry_after_s: float | None = None) -> ModelError:
        """Give the error of this room."""
        said = self._quoted(fault.message)
        if fault.overflow:
            return ContextOverflowError(f"question and answer are too long for {self.model}{said}")
        if fault.unpaid:
            return ModelRefusedError(
                f"{self.url} wants to be paid before {self.model} answers: mend the account that"
                f" {self.section}.api_key belongs to{said}"
            )
        if fault.passing:
            kind = {429: "has too many requests", 0: "broke off"}.get(
                fault.status, f"has a fault (HTTP {fault.status})"
            )
            return ModelUnavailableError(f"{self.url} {kind}{said}", retry_after_s)
        match fault.status:
            case 301 | 302 | 303 | 307 | 308:
                text = f"{self.url} sends us elsewhere: mend {self.section}.base_url"
            case 401:
                # Quotes nothing: providers repeat a part of the key.
                text = f"{self.url} does not accept the key: mend {self.section}.api_key"
            case 403:
                text = f"{self.url} does not let this key use {self.model}: mend"
                text += f" {self.section}.api_key or {self.section}.model{said}"
            case 404:
                text = f"{self.url} has no model {self.model}, or is not the base URL: mend"
                text += f" {self.section}.model or {self.section}.base_url{said}"
            case _:
                text = f"{self.url} does not take the request for {self.model}"
                text += f" (HTTP {fault.status}): see {self.section}{said}"
        return ModelRefusedError(text)

    def unusable(self, what: str) -> ModelError:
        """Give the error for an answer that cannot be used; `what` says what was sent instead."""
        return UnusableAnswerError(f"{self.url} sends {what} of {self.model}")

    def _quoted(self, message: str) -> str:
        message = " ".join(message.split())
        if self.key:
            message = message.replace(self.key, "…")
        return f"; it says: {message[:300]}" if message else ""
