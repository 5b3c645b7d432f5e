"""Interprets errors of providers: whether to ask again, with a shorter prompt, or not at all.

Providers agree on the status codes and on little else, so the contents are read tolerantly.
"""

import base64
import json
import re
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from component.models.answer_limits import ERROR_CHARACTERS
from component.models.protocol import (
    ContentFilteredError,
    ContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    UnusableAnswerError,
)
from component.models.tolerant_json import BadJSONError, decode_any
from xep.characters import without_forbidden

_PASSING = {408, 409, 425, 429}
_PART_OF_KEY: Final = 8
_MASK: Final = re.compile(r"[*•…x]{3,}|\.{3,}")
_OVERFLOW_CODES = {
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "request_too_large",
    "string_above_max_length",
    "1261",  # Zhipu
}
# The sentences of 31 servers; tests/component/models/overflows.py has them all.
_OVERFLOW = re.compile(
    r"(maximum|max) (context|prompt|input) length|context_length_exceeded|exceed_context_size"
    r"|exceed(s|ed)?( the)?( available| maximum| max| model'?s?| this model'?s?| configured)*"
    r"( input)? context"
    r"|context (size|length|window|limit)\b.{0,40}\b(exceed|overflow|too (small|long|large))"
    r"|context length (is|of) only|(configured|available) context size"
    r"|(longer|larger|greater) than (the |this )?(maximum )?(model|context)('?s)?"
    r"( context| maximum)* (length|size|window)"
    r"|(prompt|input|inputs|request|conversation) (\([^)]{0,60}\) )?(is|are) too (long|large)\b"
    r"|prompt too long|prompt (has )?exceeds|model max length exceeded"
    r"|prompt length.{0,40}(exceeds|greater than)"
    r"|(input )?token count.{0,60}exceeds|too many (input )?tokens\b(?! per)"
    r"|exceed(s|ed)? (the )?(model|maximum|max)('s)? (token limit|allowed length|number of tokens)"
    r"|exceed(s|ed)? (the )?maximum allowed input length|input (length|tokens).{0,60}exceed"
    r"|input tokens.{0,20}cannot exceed|tokens in request more than max"
    r"|n_keep.{0,20}n_ctx|range of input length|token limit exceeded"
    r"|must have less than [0-9]+ tokens"
    r"|tokens in the prompt exceeds|(prompt|input).{0,80}exceeds the limit of [0-9]"
    r"|too large for model with|reduce the length of (the|your|either)"
    r"|tokens? \+ .{0,40}must be (<=|less than)|超过模型(输入|最大)?长度",
    re.IGNORECASE | re.DOTALL,
)
# The requested maximum length of the answer is too long for the model, with any question.
_ANSWER_TOO_LONG = re.compile(
    r"max_(completion_|new_|output_)?tokens['`\" ]{0,3}"
    r"(is too large(?!.*maximum context length)|should be|must be (less|at most|between)|\("
    r"|exceeds|: Input should|: [0-9]+ >)|range of max_(completion_)?tokens"
    r"|supports at most [0-9,]+ (completion|output) tokens",
    re.IGNORECASE | re.DOTALL,
)
_RATE = re.compile(
    r"rate limit|too many requests|tokens per (minute|day)|\bTPM\b|throttl", re.IGNORECASE
)
_FILTERED = re.compile(
    r"content_filter|content_policy_violation|ResponsibleAIPolicyViolation"
    r"|data_?inspection_?failed|content management policy|^1301$",
    re.IGNORECASE,
)
# The template of the model fails on the messages: llama.cpp says so with HTTP 500.
_TEMPLATE = re.compile(
    r"roles must alternate|unexpected role|system (role|message|prompt)s? (is |are )?not supported"
    r"|tool[ _]call ids? (should|must)",
    re.IGNORECASE,
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
    """An error that a provider sent instead of an answer. `status` is 0 for one in the stream."""

    status: int
    message: str = ""
    code: str = ""

    @property
    def overflow(self) -> bool:
        """Whether question and answer were too long."""
        if self.status in (401, 402, 403, 404, 429):
            return False
        if self.code in _OVERFLOW_CODES or self.status == 413:
            return True
        return (
            bool(_OVERFLOW.search(self.message))
            and not self.answer_too_long
            and not _RATE.search(self.message)
        )

    @property
    def answer_too_long(self) -> bool:
        """Whether the requested maximum length of the answer is too long for the model."""
        return self.status in (400, 422) and bool(_ANSWER_TOO_LONG.search(self.message))

    @property
    def filtered(self) -> bool:
        """Whether the provider's content filter rejects the question or the answer."""
        return bool(_FILTERED.search(self.code) or _FILTERED.search(self.message))

    @property
    def rejected(self) -> bool:
        """Whether the request is rejected, but may be accepted in another form."""
        if self.overflow or self.unpaid or self.filtered:
            return False
        return self.status in (400, 422) or bool(_TEMPLATE.search(self.message))

    @property
    def unpaid(self) -> bool:
        """Whether the account has no money left, so that waiting does not help."""
        return self.status == 402 or bool(
            _NO_MONEY.search(self.code) or _NO_MONEY.search(self.message)
        )

    @property
    def passing(self) -> bool:
        """Whether the same request may be answered later."""
        if self.overflow or self.unpaid or self.filtered or self.rejected:
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
    """Read the body of a response with a status of 400 or more, or an error in a stream. Any
    content is accepted.

    Only `ERROR_CHARACTERS` of a message are used, without characters that cannot be stored.
    """
    try:
        body = decode_any(said)
    except BadJSONError:
        text = said.decode(errors="replace").strip()
        # The HTML page of a proxy is not useful.
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


def without_key(word: str, key: str) -> str:
    """Return a word of a provider's message, or "…" if a part of the API key is in it.

    Providers repeat the key masked, cut off, in other letters or encodings. Any eight characters of
    it in a row count, of a shorter key all; so do three at the beginning of a masked word.
    """
    if not key:
        return word
    if key in word:
        return word.replace(key, "…")
    plain = unquote(word).casefold()
    masked = _MASK.search(plain)
    if masked is not None and key.casefold()[:3] in plain[: masked.start()]:
        return "…"
    forms = (key.casefold(), base64.b64encode(key.encode()).decode().rstrip("=").casefold())
    for form in forms:
        size = min(_PART_OF_KEY, len(form))
        if any(form[at : at + size] in plain for at in range(len(form) - size + 1)):
            return "…"
    return word


class Where(msgspec.Struct, frozen=True):
    """The parts of error messages: the model, its address, and its section of the settings.

    `key` is the API key; it and its parts are removed from messages of the provider.
    """

    model: str
    url: str
    section: str
    key: str = ""

    def error(self, fault: Fault, retry_after_s: float | None = None) -> ModelError:
        """Make the error for a fault."""
        said = self._quoted(fault.message)
        if fault.overflow:
            return ContextOverflowError(f"question and answer are too long for {self.model}{said}")
        if fault.filtered:
            return ContentFilteredError(
                f"{self.url} filters the content of a request for {self.model}{said}"
            )
        if fault.answer_too_long:
            return ModelRefusedError(
                f"{self.model} cannot write so long an answer: lower"
                f" {self.section}.max_tokens_per_request{said}"
            )
        if fault.unpaid:
            return ModelRefusedError(
                f"{self.url} requires payment before {self.model} answers: check the account that"
                f" {self.section}.api_key belongs to{said}"
            )
        if fault.passing:
            kind = {429: "has too many requests", 0: "broke off"}.get(
                fault.status, f"has a fault (HTTP {fault.status})"
            )
            return ModelUnavailableError(f"{self.url} {kind}{said}", retry_after_s)
        match fault.status:
            case 301 | 302 | 303 | 307 | 308:
                text = f"{self.url} redirects requests: correct {self.section}.base_url"
            case 401:
                # Without the provider's message, which may contain a part of the key.
                text = f"{self.url} does not accept the key: correct {self.section}.api_key"
            case 403:
                text = f"{self.url} does not allow this key to use {self.model}: correct"
                text += f" {self.section}.api_key or {self.section}.model{said}"
            case 404:
                text = f"{self.url} has no model {self.model}, or is not the base URL: correct"
                text += f" {self.section}.model or {self.section}.base_url{said}"
            case _:
                text = f"{self.url} does not take the request for {self.model}"
                text += f" (HTTP {fault.status}): see {self.section}{said}"
        return ModelRefusedError(text)

    def unusable(self, what: str) -> ModelError:
        """Make the error for an unusable answer; `what` describes what was sent instead."""
        return UnusableAnswerError(f"{self.url} sends {what} of {self.model}")

    def _quoted(self, message: str) -> str:
        message = " ".join(without_key(word, self.key) for word in message.split())
        return f"; it says: {message[:300]}" if message else ""
