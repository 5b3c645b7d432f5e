"""Tests of a skill as data: parameters, and the results that they should give.

They are in `tests/cases.toml` of its directory, which is not part of what is approved. So they work
for skills of every kind, and run where the skill runs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from component.http.gate import (
    Access,
    Headers,
    HttpFailed,
    HttpGate,
    HttpLimits,
    HttpResponse,
    HttpTooLarge,
)
from component.http.targets import HttpTarget
from component.skills import host
from component.skills.errors import CALL_ERRORS, SkillLoadError
from component.skills.fake_context import FakeContext, called
from component.skills.outputs import File, Link, Part
from component.skills.skill import Skill

CASES_FILE: Final = "tests/cases.toml"
_MOST_BYTES: Final = 1_048_576


class ScriptedResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One response, in the order of the requests.

    Attributes:
        url: the URL that the request should have; any if it is empty.
        method: the method that it should have; any if it is empty.
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
        if self.body is not msgspec.UNSET and _decoded(body) != self.body:
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


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One case. What it does not name is not compared.

    Attributes:
        contains: a part of it.
        error: a part of the error that the skill reports.
        http: what servers answer, in order. Nothing is sent to real ones.
        memories: what the skill remembers at the beginning, by key.
    """

    name: str
    params: dict[str, Any] = {}
    text: str | None = None
    contains: str | None = None
    json: Any = msgspec.UNSET
    error: str | None = None
    answers: tuple[Any, ...] = ()
    model: tuple[Any, ...] = ()
    http: tuple[ScriptedResponse, ...] = ()
    memories: dict[str, str] = {}
    credentials: tuple[str, ...] = ()


class _Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    case: tuple[Case, ...] = ()


def read_cases(directory: Path) -> Sequence[Case]:
    """Return the cases of a skill; none without a file. Blocks. Raises SkillLoadError."""
    path = directory / CASES_FILE
    try:
        return parse_cases(path.read_bytes())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise SkillLoadError(f"{CASES_FILE} cannot be read: {error.strerror or error}") from error


def parse_cases(text: bytes) -> Sequence[Case]:
    """Return the cases of a file. Raises SkillLoadError."""
    if len(text) > _MOST_BYTES:
        raise SkillLoadError(f"{CASES_FILE} has more than {_MOST_BYTES} bytes.")
    try:
        return msgspec.convert(tomllib.loads(text.decode()), _Cases).case
    except (ValueError, RecursionError) as error:
        raise SkillLoadError(f"{CASES_FILE} cannot be used: {error}") from error


class ScriptedNetwork:
    """The network of tests. Until the first is played, it connects to real servers."""

    def __init__(self) -> None:
        self.problem = ""
        self._responses: list[ScriptedResponse] | None = None

    @property
    def unused(self) -> int:
        """The number of responses that nobody asked for."""
        return len(self._responses or ())

    def play(self, responses: Sequence[ScriptedResponse]) -> None:
        """Answer the next requests with these responses."""
        self._responses = list(responses)
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
        self, target: HttpTarget, method: str, headers: Headers, body: bytes
    ) -> HttpResponse:
        found = self._network.answer(method, target.url, body)
        if len(found.body) > self._most:
            raise HttpTooLarge(f"The response of {target.origin} is too large.")
        return found


async def run_case(skill: Skill, case: Case, network: ScriptedNetwork) -> str:
    """Call a skill as a case says, through `network`; return what is wrong, or an empty text."""
    network.play(case.http)
    problem = await _problem(skill, case, network)
    if network.problem:
        return network.problem
    if not problem and network.unused:
        return "it made fewer requests than the case answers"
    return problem


async def _problem(skill: Skill, case: Case, network: ScriptedNetwork) -> str:
    context = FakeContext(
        answers=case.answers,
        model=case.model,
        http=network.request,
        memories=case.memories,
        credentials=case.credentials,
    )
    try:
        result = await called(skill, case.params, context)
    except CALL_ERRORS as error:
        cause = error.__cause__
        text = str(error) if cause is None else f"{type(cause).__name__}: {cause}"
        return "" if case.error is not None and case.error in text else text
    texts = [_text(part) for part in result.outputs]
    shown = "\n".join(texts)
    value = _decoded(texts[0]) if len(texts) == 1 else texts
    if result.is_error != (case.error is not None):
        return f"it reported {'the error' if result.is_error else ''} {shown!r}"
    for expected, right, what in (
        (case.error, case.error is None or case.error in shown, "an error with"),
        (case.text, case.text is None or texts == [case.text], "the text"),
        (case.contains, case.contains is None or case.contains in shown, "a text with"),
        (case.json, case.json is msgspec.UNSET or value == case.json, "the value"),
    ):
        if not right:
            return f"expected {what} {expected!r}, not {shown!r}"
    return "it asked fewer questions than the case answers" if context.unused else ""


def _text(part: Part) -> str:
    """Return the text of a part: of a link its URL, of a file its type and size."""
    if isinstance(part, File):
        return f"{part.media_type}, {len(part.data)} bytes"
    return part.url if isinstance(part, Link) else part.text


def _decoded(text: str | bytes) -> object:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
