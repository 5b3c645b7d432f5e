"""A delivery of a webhook: who has sent it, its JSON, and why it is refused.

GitHub signs the body alone (`X-Hub-Signature-256`, HMAC with SHA-256, hexadecimal). Standard
Webhooks (https://www.standardwebhooks.com) signs `id.timestamp.body` (`webhook-signature`, a list
of `v1,` and base64). `slack.py` and `discord.py` have those of these services. All comparisons take
the same time whatever the signature is.
"""

import base64
import binascii
import hmac
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qs

import msgspec

T = TypeVar("T")

_GITHUB_SIGNATURE: Final = re.compile(r"sha256=([0-9a-f]{64})")
_ID: Final = re.compile(r"[!-~]{1,256}")
TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_EVENT: Final = re.compile(r"[a-z0-9_]{1,64}")
_MOST_SIGNATURES: Final = 8
"""Signatures of one delivery that are looked at; there is one for each secret of the sender."""
_LONGEST_HEADER: Final = 1024

SHARE_HINT: Final = (
    "set the same secret in [[webhook]] and at the sender; if it was changed there, keep the old"
    " one in previous_secret until all deliveries with it have arrived"
)
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
_FORM_FIELD: Final = "payload"


Status: TypeAlias = Literal[400, 401, 404, 405, 408, 413, 415, 429, 503]


class WebhookError(Exception):
    """A delivery is refused. `reason` tells the sender what is wrong, in one sentence without
    anything about secrets; `hint` tells the operator what to do, in the log. The sender should try
    again after `retry_after_s` seconds; never if it is None. `headers` are more of the answer.
    """

    def __init__(
        self,
        status: Status,
        reason: str,
        hint: str,
        *,
        retry_after_s: float | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.headers = headers


class Signed(msgspec.Struct, frozen=True):
    """A delivery whose sender is known.

    Attributes:
        id: the sender's, for answers and the log.
        key: the same for a delivery that is sent again, and signed.
        event: the kind, if the sender names it in the headers.
        no_work: why such a delivery never starts work, as a sentence; empty if it may.
        when_ignored: the body that the sender expects, with the status 200, for a delivery that
            starts no work; None for that of this service.
        when_accepted: likewise, for one that does.
    """

    id: str
    key: str
    event: str = ""
    no_work: str = ""
    when_ignored: bytes | None = None
    when_accepted: bytes | None = None


class Verifier(ABC):
    """Verifies deliveries."""

    @abstractmethod
    def check(self, headers: Mapping[str, str]) -> Sequence[bytes]:
        """Check that the headers can belong to a signed delivery, before its body is received;
        return its signatures. Raises WebhookError, as `verify` does.
        """

    @abstractmethod
    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """Return the delivery with these headers (names in lower case) and this body.

        `now` is in seconds since 1970. Raises WebhookError: 400 for headers that are missing or
        malformed, 401 for a signature that is wrong or too old.
        """


class HmacVerifier(Verifier):
    """Verifies deliveries with an HMAC. `secrets` are the secret, and the ones before it that are
    still accepted.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)

    def _check_signature(
        self, signed: bytes, given: Sequence[bytes], hint: str = SHARE_HINT
    ) -> None:
        valid = False
        for secret in self._secrets:
            expected = hmac.new(secret, signed, sha256).digest()
            for signature in given[:_MOST_SIGNATURES]:
                valid |= hmac.compare_digest(expected, signature)
        if not valid:
            raise wrong_signature(hint)


class GitHubVerifier(HmacVerifier):
    """Verifies deliveries of GitHub, and of those who sign as GitHub does.

    The id of a delivery (`X-GitHub-Delivery`) is not signed. So the key is made from the body: who
    has recorded a delivery cannot start work with it by inventing a new id.
    """

    def check(self, headers: Mapping[str, str]) -> Sequence[bytes]:
        """Check the headers, as `Verifier.check` says."""
        given = _GITHUB_SIGNATURE.fullmatch(header(headers, "x-hub-signature-256"))
        if given is None:
            raise not_signed("X-Hub-Signature-256")
        return [bytes.fromhex(given[1])]

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """Return the delivery, as `Verifier.verify` says."""
        self._check_signature(body, self.check(headers))
        event = headers.get("x-github-event", "")
        if not _EVENT.fullmatch(event):
            raise WebhookError(
                400,
                "The header X-GitHub-Event is missing or malformed.",
                'the sender is not GitHub: use kind = "generic" if it follows Standard Webhooks',
            )
        digest = sha256(body).hexdigest()
        id_ = headers.get("x-github-delivery", "")
        # The event is not signed either, but which one it is decides what is done.
        return Signed(id_ if _ID.fullmatch(id_) else digest[:32], digest, event)


class StandardVerifier(HmacVerifier):
    """Verifies deliveries of senders that follow Standard Webhooks, whose time differs from `now`
    by at most `window_s` seconds.
    """

    def __init__(self, secrets: Sequence[bytes], window_s: float) -> None:
        super().__init__(secrets)
        self._window_s = window_s

    def check(self, headers: Mapping[str, str]) -> Sequence[bytes]:
        """Check the headers, as `Verifier.check` says."""
        for name, pattern in (("webhook-id", _ID), ("webhook-timestamp", TIMESTAMP)):
            if not pattern.fullmatch(header(headers, name)):
                raise WebhookError(
                    400,
                    f"The header {name} is missing or malformed.",
                    'the sender does not follow Standard Webhooks; for GitHub use kind = "github"',
                )
        given = header(headers, "webhook-signature")
        if not given:
            raise WebhookError(
                401,
                "The header webhook-signature is missing.",
                f"the sender does not sign its deliveries: {SHARE_HINT}",
            )
        return [found for text in given.split(" ") if (found := _decoded(text))]

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """Return the delivery, as `Verifier.verify` says."""
        signatures = self.check(headers)
        id_, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        self._check_signature(b".".join((id_.encode(), timestamp.encode(), body)), signatures)
        check_time(timestamp, now, self._window_s)
        return Signed(id_, id_)


def check_time(timestamp: str, now: float, window_s: float) -> None:
    """Raise WebhookError (401) if a signed time in seconds since 1970 is not within `window_s`
    seconds of `now`.
    """
    late_s = now - int(timestamp)
    if abs(late_s) > window_s:
        when = "past" if late_s > 0 else "future"
        raise WebhookError(
            401,
            "The timestamp is too far from the time of this service.",
            f"the delivery was signed {abs(late_s):.0f} s in the {when}: set the clocks of both"
            " machines, or increase webhooks.replay_window_s",
        )


def wrong_signature(hint: str) -> WebhookError:
    """Return the refusal of a wrong signature. `hint` says what to compare."""
    return WebhookError(401, "The signature is wrong.", hint)


def not_signed(name: str, hint: str = SHARE_HINT) -> WebhookError:
    """Return the refusal of a delivery whose header `name` is missing or malformed."""
    return WebhookError(
        401,
        f"The header {name} is missing or malformed.",
        f"the sender does not sign its deliveries: {hint}",
    )


def header(headers: Mapping[str, str], name: str) -> str:
    """Return the value of a header; empty if it is missing or too long."""
    value = headers.get(name, "")
    return value if len(value) <= _LONGEST_HEADER else ""


def _decoded(text: str) -> bytes | None:
    version, _, signature = text.partition(",")
    if version != "v1":
        return None  # signatures of other versions stand beside it while a sender changes
    try:
        return base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None


def is_readable(content_type: str, *, forms: bool) -> bool:
    """Return whether a body of this media type can be read; with `forms`, GitHub's forms too."""
    media_type = _media_type(content_type)
    is_json = media_type == _JSON or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    return is_json or (forms and media_type == _FORM)


def read_json(content_type: str, body: bytes, max_depth: int) -> Any:
    """Return the value of a body. GitHub can send JSON as the field `payload` of a form.

    Raises WebhookError (400): it is not JSON in UTF-8, or is nested too deeply.
    """
    text: bytes | str = body
    if _media_type(content_type) == _FORM:
        text = _field(body)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep(max_depth) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WebhookError(
            400,
            "The body is not JSON in UTF-8.",
            f"the sender signs what cannot be read ({error}): have it send JSON",
        ) from None
    if _is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    return value


def read_as(kind: type[T], body: bytes) -> T:
    """Return what a service always sends in the JSON of a body. Raises WebhookError (400)."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WebhookError(
            400,
            "The body is not what the service sends.",
            f"the sender signs as that service does, and is another one: {error}",
        ) from None


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _field(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("ascii"), errors="strict", max_num_fields=2)
        (found,) = fields[_FORM_FIELD]
    except (ValueError, KeyError):
        raise WebhookError(
            400,
            "The form does not have exactly one field payload.",
            "set the content type of the webhook at the sender to application/json",
        ) from None
    return found


def _too_deep(max_depth: int) -> WebhookError:
    return WebhookError(
        400,
        f"The JSON is nested more than {max_depth} levels deep.",
        "increase webhooks.max_depth if the sender is right",
    )


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether arrays and objects are nested more than `most` levels. Does not recurse."""
    level = [value]
    for _ in range(most):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        if not below:
            return False
        level = below
    return any(isinstance(each, dict | list) for each in level)
