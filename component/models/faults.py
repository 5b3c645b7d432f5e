"""Reads the errors of providers, and makes errors for the callers of models of them.

The contents are read tolerantly: each provider nests them in its own way, and gateways put the
error of another provider inside theirs.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from html import unescape
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from component.models.answer_limits import ERROR_CHARACTERS, BadJSONError, decode_any
from component.models.fault_kinds import Kind, fault_kind, named_field
from component.models.protocol import (
    ContentFilteredError,
    ContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    UnusableAnswerError,
)
from xep.characters import without_forbidden

_PART_OF_KEY: Final = 8
_MASK: Final = re.compile(r"[*•…x]{3,}|\.{3,}")
_UNKNOWN = re.compile(
    r"unsupported|unrecognized|unknown|unexpected|not (be )?(supported|permitted|allowed)"
    r"|does ?n[o']t support|extra (inputs|fields)|deprecated",
    re.IGNORECASE,
)
_MOST_CODES: Final = 16
_MOST_DETAILS: Final = 4
_DEEPEST: Final = 6
"""How deep errors and their details may be nested: a provider's in a gateway's in another's."""
_INNER: Final = ("error", "innererror", "inner_error", "metadata", "raw", "base_resp")
_CODES: Final = ("code", "__type", "type", "error_type", "status", "reason", "status_code")


class Fault(msgspec.Struct, frozen=True):
    """An error that a provider sent instead of an answer.

    Attributes:
        status: the HTTP status; 0 for an error in a stream.
        codes: codes and types, the most specific first.
        field: the field of the request that it is about, if the provider names one.
        retry_after_s: when to ask again, if the body says so.
    """

    status: int
    message: str = ""
    codes: tuple[str, ...] = ()
    field: str = ""
    retry_after_s: float | None = None

    @property
    def kind(self) -> Kind:
        """What it means."""
        waits = self.retry_after_s is not None
        return fault_kind(self.status, self.codes, self.message, self.field, waits=waits)

    @property
    def rejected(self) -> bool:
        """Whether the request is rejected, but may be accepted in another form."""
        return self.kind == "rejected"

    def blames(self, parameter: str) -> bool:
        """Whether the provider does not take this parameter of the request."""
        return (
            self.rejected
            and parameter in self.message
            and any(_UNKNOWN.search(text) for text in (self.message, *self.codes))
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
        text = "" if text.startswith("<") else without_forbidden(text[:500])
        return Fault(status, text, retry_after_s=text_wait_s(text))
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return Fault(status, _text(body), retry_after_s=text_wait_s(_text(body)))
    errors = list(_errors(body))
    messages = [message for error in errors if (message := _message(error))]
    codes: list[str] = []
    for error in reversed(errors):  # that of the provider before that of the gateway
        for code in _codes_of(error):
            if not code.isdecimal() or not 100 <= int(code) < 600:
                codes.append(code)
            elif not status and int(code) >= 400:
                status = int(code)  # a stream has it nowhere else
    message = ": ".join(dict.fromkeys(messages))[:ERROR_CHARACTERS]
    field = next((f for e in errors if isinstance(f := e.get("param"), str) and f), "")
    wait = next((w for e in errors if (w := body_wait_s(e)) is not None), None)
    return Fault(
        status,
        message,
        tuple(dict.fromkeys(codes))[:_MOST_CODES],
        _text(field)[:200] or named_field(message),
        text_wait_s(message) if wait is None else wait,
    )


def _errors(body: dict[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
    """The error and those inside it, from the outside."""
    yield body
    if depth == _DEEPEST:
        return
    inner = [body.get(name) for name in _INNER]
    listed = body.get("errors") or ()
    details = body.get("details") or ()
    for some in (listed, details):
        inner += some[:_MOST_DETAILS] if isinstance(some, list) else [some]
    message = body.get("message")
    if isinstance(message, str) and message.lstrip().startswith("{"):
        inner.append(message)
    for each in inner:
        if isinstance(each, str) and each.lstrip().startswith("{"):
            try:
                each = decode_any(each.encode(errors="replace"))  # noqa: PLW2901
            except BadJSONError:
                continue
        if isinstance(each, list) and each:
            each = each[0]  # noqa: PLW2901
        if isinstance(each, dict):
            yield from _errors(each, depth + 1)


def _message(error: dict[str, Any]) -> str:
    for name in ("message", "detail", "status_msg", "error", "raw"):
        value = error.get(name)
        if name in ("error", "raw") and not isinstance(value, str):
            continue
        if isinstance(value, dict) or (
            isinstance(value, str) and value.lstrip().startswith("{") and _is_json(value)
        ):
            continue  # `_errors` has it
        if value and (text := _text(value)):
            return text
    return ""


def _is_json(text: str) -> bool:
    try:
        return isinstance(decode_any(text.encode(errors="replace")), dict)
    except BadJSONError:
        return False


def _codes_of(error: dict[str, Any]) -> Iterator[str]:
    for name in _CODES:
        code = error.get(name)
        if isinstance(code, str | int) and not isinstance(code, bool):
            # AWS has a namespace before, and a URL after it.
            yield _text(str(code)[:200].rpartition("#")[2].partition(":")[0])


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, separators=(",", ":"))
        except (ValueError, RecursionError):  # an integer too long to write, or nested too deeply
            return ""
    return without_forbidden(value[:ERROR_CHARACTERS])


def without_key(text: str, key: str) -> str:
    """Return a provider's message with one space between words, and "…" for each word with a part
    of the API key.

    Providers repeat the key masked, cut off, in other letters or encodings, and with other
    characters between its own. A part of the key is any eight of its letters and digits in a row
    (all of them if the key is shorter), or its first three characters before a mask.
    """
    if not key:
        return " ".join(text.split())
    words = ["…" if _is_masked(word, key) else word for word in text.replace(key, "…").split()]
    letters: list[tuple[str, int]] = []  # each with the number of its word
    for number, word in enumerate(words):
        plain = unquote(unquote(unescape(word))).casefold()
        letters += [(letter, number) for letter in plain if letter.isalnum()]
    said = "".join(letter for letter, _ in letters)
    hidden: set[int] = set()
    for form in _forms(key):
        size = min(_PART_OF_KEY, len(form))
        for at in range(len(form) - size + 1):
            found = said.find(form[at : at + size])
            while found >= 0:
                hidden.update(number for _, number in letters[found : found + size])
                found = said.find(form[at : at + size], found + 1)
    return " ".join("…" if number in hidden else word for number, word in enumerate(words))


def _is_masked(word: str, key: str) -> bool:
    plain = unquote(word).casefold()
    masked = _MASK.search(plain)
    return masked is not None and key.casefold()[:3] in plain[: masked.start()]


@lru_cache(maxsize=64)
def _forms(key: str) -> tuple[str, ...]:
    """Return the key as it may be repeated: letters and digits, in lower case."""
    data = key.encode()
    # What is encoded before the key decides where the groups of three bytes begin.
    encoded = [base64.b64encode(bytes(before) + data).decode() for before in range(3)]
    whole = [encoded[0].rstrip("="), encoded[1][2:].rstrip("="), encoded[2][3:].rstrip("=")]
    forms = [key, key[::-1], data.hex(), *whole]
    plain = ["".join(filter(str.isalnum, form.casefold())) for form in forms]
    return tuple(form for form in plain if form)


_SENTENCES: Final[Mapping[Kind, str]] = {
    "overflow": "question and answer are too long for {model}{said}",
    "filtered": "{url} filters the content of a request for {model}{said}",
    "bad_call": "{url} cannot read a call that {model} has written{said}",
    "rate_limit": "{url} has too many requests{said}",
    "answer_too_long": "{model} cannot write so long an answer: lower"
    " {section}.max_tokens_per_request{said}",
    "unpaid": "{url} requires payment before {model} answers: check the account that"
    " {section}.api_key belongs to{said}",
    "redirect": "{url} redirects requests: correct {section}.base_url",
    # Without the provider's message, which may contain a part of the key.
    "key": "{url} does not accept the key: correct {section}.api_key",
    "forbidden": "{url} does not allow this key to use {model}: correct {section}.api_key or"
    " {section}.model{said}",
    "unknown_model": "{url} has no model {model}, or is not the base URL: correct"
    " {section}.model or {section}.base_url{said}",
}
_REFUSED: Final = "{url} does not take the request for {model} (HTTP {status}): see {section}{said}"


class Where(msgspec.Struct, frozen=True):
    """The parts of error messages: the model, its address, and its section of the settings.

    `key` is the API key; it and its parts are removed from messages of the provider.
    """

    model: str
    url: str
    section: str
    key: str = ""

    def error(self, fault: Fault, retry_after_s: float | None = None) -> ModelError:
        """Make the error for a fault; `retry_after_s` is what the headers say."""
        kind, status = fault.kind, fault.status
        sentence = _SENTENCES.get(kind, _REFUSED)
        if kind == "unavailable":
            sentence = (
                "{url} " + ("has a fault (HTTP {status})" if status else "broke off") + "{said}"
            )
        message = without_key(fault.message, self.key)
        text = sentence.format(
            model=self.model,
            url=self.url,
            section=self.section,
            status=status,
            said=f"; it says: {message[:300]}" if message else "",
        )
        match kind:
            case "overflow":
                return ContextOverflowError(text)
            case "filtered":
                return ContentFilteredError(text)
            case "bad_call" | "rate_limit" | "unavailable":
                wait = fault.retry_after_s if retry_after_s is None else retry_after_s
                return ModelUnavailableError(text, wait)
        return ModelRefusedError(text)

    def unusable(self, what: str) -> ModelError:
        """Make the error for an unusable answer; `what` describes what was sent instead."""
        return UnusableAnswerError(f"{self.url} sends {what} of {self.model}")


# -- when to ask again: in the headers (RFC 9110 §10.2.3), or in the body --------------------------

_DAY_S = 86_400.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY_S}
_AMOUNT: Final = (
    r"(\d{1,9}(?:\.\d{1,9})?) ?"
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
)
_AMOUNTS: Final = re.compile(_AMOUNT, re.IGNORECASE)
_DURATION: Final = re.compile(rf"(?:{_AMOUNT} ?){{1,4}}", re.IGNORECASE)
# OpenAI, Groq: "try again in 6m23.04s"; Azure: "retry after 20 seconds"; Gemini: "retry in 38.2s",
# "quota will reset after 5h12m3s".
_WAIT: Final = re.compile(
    rf"\b(?:(?:try again|retry|resets?|available again) (?:again )?(?:in|after)|please wait)"
    rf" ((?:{_AMOUNT}(?: and |, | )?){{1,4}})",
    re.IGNORECASE,
)
_TIMESTAMP: Final = 1_000_000_000.0
"""A delay this long is a time in seconds since 1970."""


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Give the seconds that a response asks to wait, or None if it does not say.

    Reads `retry-after-ms`, which OpenAI sends, and `retry-after` in seconds or as a date, and as
    some gateways write it: as a duration such as `1m30s`, a timestamp, or a date of ISO 8601. What
    cannot be read does not count; more than a day is a day. `headers` has lower-case names; `now`
    has a time zone.
    """
    ms = _number(headers.get("retry-after-ms"))
    if ms is not None:
        return min(ms / 1000, _DAY_S)
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is None and said is not None:
        if _DURATION.fullmatch(said.strip()):
            return _duration_s(said)
        when = _date(said)
        seconds = None if when is None else max(0.0, (when - now).total_seconds())
    elif seconds is not None and seconds > _TIMESTAMP:
        seconds = max(0.0, seconds - now.timestamp())
    return None if seconds is None else min(seconds, _DAY_S)


def _date(said: str) -> datetime | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            when = read(said.strip())
        except (ValueError, OverflowError):
            continue
        return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return None


def _number(said: str | None) -> float | None:
    try:
        number = float(said or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def text_wait_s(message: str) -> float | None:
    """Give the seconds that the text of an error asks to wait, or None if it does not say."""
    found = _WAIT.search(message)
    return None if found is None else _duration_s(found[1])


def body_wait_s(error: Mapping[str, Any]) -> float | None:
    """Give the seconds that the fields of an error ask to wait, or None if they do not say.

    Reads `retryDelay` of google.rpc.RetryInfo (a duration as in "38s"), and `retry_after` and the
    like of others, in seconds.
    """
    delay = error.get("retryDelay")
    if isinstance(delay, str):
        return _duration_s(delay)
    if isinstance(delay, Mapping):  # a google.protobuf.Duration as an object
        delay = delay.get("seconds")
    delays = [error.get(key) for key in ("retry_after", "retryAfter", "retry_after_seconds")]
    for value in (delay, *delays):
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            seconds = _number(str(value)[:40])
            if seconds is not None:
                return min(seconds, _DAY_S)
    return None


def _duration_s(text: str) -> float | None:
    """Add up the parts of a duration such as `1m2.5s`; None if there are none."""
    parts = _AMOUNTS.findall(text[:80])
    if not parts:
        return None
    total = sum(float(number) * _UNITS[_unit(unit)] for number, unit in parts)
    return min(total, _DAY_S)


def _unit(name: str) -> str:
    name = name.lower()
    return "ms" if name.startswith(("ms", "mill")) else name[0]
