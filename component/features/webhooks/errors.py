"""Why a delivery is refused: the status of the answer (RFC 9110 §15), and what to do about it."""

from typing import Literal, TypeAlias

Status: TypeAlias = Literal[400, 401, 404, 405, 408, 413, 415, 429, 503]


class WebhookError(Exception):
    """A delivery is refused.

    Args:
        status: the status code of the answer.
        reason: what is wrong, as one sentence for the sender. It tells nothing about secrets.
        hint: what the operator can do about it, for the log.
        retry_after_s: seconds after which the sender should try again; None if it should not.
        headers: more headers of the answer.
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
