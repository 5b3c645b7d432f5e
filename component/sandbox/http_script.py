"""Requests of tests: servers that answer as a test says. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from component.sandbox.http_gate import (
    Access,
    Headers,
    HttpFailed,
    HttpGate,
    HttpLimits,
    HttpResponse,
    HttpTooLarge,
)
from component.sandbox.http_targets import Target
from component.skills import host


class ScriptedResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One response, in the order of the requests.

    Attributes:
        url: the URL that the request should have; any if it is empty.
        method: the method that it should have; any if it is empty.
        body: the JSON that it should have.
        status: the status of the response.
        headers: its header fields.
        json: its content as JSON.
        text: its content otherwise.
    """

    url: str = ""
    method: str = ""
    body: Any = msgspec.UNSET
    status: int = 200
    headers: dict[str, str] = {}
    json: Any = msgspec.UNSET
    text: str = ""

    def mismatch(self, method: str, url: str, body: bytes) -> str:
        """Return how a request differs from the expected one; empty if it does not."""
        if self.url and self.url != url:
            return f"expected a request to {self.url}, not to {url}"
        if self.method and self.method != method:
            return f"expected a request by {self.method}, not by {method}"
        if self.body is not msgspec.UNSET and _json(body) != self.body:
            return f"expected a request with {self.body!r}, not with {body!r}"
        return ""

    def response(self, url: str) -> HttpResponse:
        """Return the response."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.json is msgspec.UNSET:
            headers.setdefault("content-type", "text/plain; charset=utf-8")
            body = self.text.encode()
        else:
            headers.setdefault("content-type", "application/json")
            body = msgspec.json.encode(self.json)
        return HttpResponse(self.status, tuple(headers.items()), body, url)


class ScriptedNetwork:
    """The network of tests.

    Attributes:
        problem: how a request differed from what the test expects.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._responses: list[ScriptedResponse] | None = None

    @property
    def unused(self) -> int:
        """The number of responses that nobody asked for."""
        return len(self._responses or ())

    def play(self, responses: Sequence[ScriptedResponse] | None) -> None:
        """Answer the next requests with these responses; with None, connect to real servers."""
        self._responses = None if responses is None else list(responses)
        self.problem = ""

    def gate(self, access: Sequence[Access], limits: HttpLimits | None) -> HttpGate:
        """Return a gate that permits these servers."""
        if self._responses is None:
            return HttpGate(access, limits)
        return _ScriptedGate(access, limits or HttpLimits(), self)

    async def request(self, request: host.HttpRequest) -> host.HttpResponse:
        """Answer a request of a skill. Raises HostError if the test expects another one."""
        try:
            found = self.answer(request.method, request.url, request.body)
        except HttpFailed as error:
            raise host.HostError(str(error)) from error
        return host.HttpResponse(found.status, found.headers, found.body)

    def answer(self, method: str, url: str, body: bytes) -> HttpResponse:
        """Return the next response. Raises HttpFailed if the test expects another request."""
        assert self._responses is not None, "the gate is of a script"
        if not self._responses:
            self.problem = self.problem or f"there is no response to {method} {url}: add it to http"
        else:
            following = self._responses.pop(0)
            self.problem = self.problem or following.mismatch(method, url, body)
            if not self.problem:
                return following.response(url)
        raise HttpFailed(f"In the test {self.problem}.", begun=False)


class _ScriptedGate(HttpGate):
    """Checks requests and redirects as every gate does, and sends nothing."""

    def __init__(
        self, access: Sequence[Access], limits: HttpLimits, network: ScriptedNetwork
    ) -> None:
        super().__init__(access, limits)
        self._network = network
        self._most = limits.response_bytes

    async def _exchange(
        self, target: Target, method: str, headers: Headers, body: bytes
    ) -> HttpResponse:
        found = self._network.answer(method, target.url, body)
        if len(found.body) > self._most:
            raise HttpTooLarge(f"The response of {target.origin} is too large.")
        return found


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body
