"""Converts the response of an API to the result of a skill."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from component import system
from component.config.kinds import is_true
from component.config.rest import pieces_of
from component.http.gate import HttpResponse
from component.rest.requests import in_one_line, response_json
from component.rest.template import value_text
from component.skills.errors import SkillError
from component.skills.outputs import JSON, TEXT, File, Output, SkillResult, is_json

_IN_THREAD_BYTES: Final = 65_536
_MOST_LINES: Final = 1_000
_TEXTS: Final = ("text/", "application/xml", "application/yaml")


class ResponseConverter:
    """Makes results.

    Args:
        select: JMESPath expression that selects a part of the JSON; empty for all of it.
        output: text with JMESPath expressions as placeholders; empty for the JSON itself.
        error: JMESPath expression that selects an error from the JSON; empty if none is there.
    """

    def __init__(self, select: str = "", output: str = "", error: str = "") -> None:
        self._error = jmespath.compile(error) if error else None
        self._select = jmespath.compile(select) if select else None
        self._output = [
            (literal, jmespath.compile(expression) if expression else None)
            for literal, expression in pieces_of(output)
        ]
        self._templated = bool(output)

    async def result(self, response: HttpResponse) -> SkillResult:
        """Return the result. Raises SkillError for a response that is not what was described, or
        that has an error.
        """
        media_type = response.media_type
        if not response.body:
            return SkillResult((Output(f"Done (status {response.status})."),))
        if not is_json(media_type) and not (self._select or self._templated or self._error):
            return SkillResult((_part(media_type, response.body),))
        if len(response.body) > _IN_THREAD_BYTES:
            return await system.in_thread(self._of_json, response)
        return self._of_json(response)

    def _of_json(self, response: HttpResponse) -> SkillResult:
        value = response_json(response)
        try:
            if self._error is not None and is_true(found := self._error.search(value)):
                raise _reported(response, found)
            if self._select is not None:
                value = self._select.search(value)
            data = Output(msgspec.json.encode(value).decode(), JSON, "data")
            if not self._templated:
                return SkillResult((data,))
            rows = value[:_MOST_LINES] if isinstance(value, list) else [value]
            text = "\n".join(map(self._line, rows))
        except (JMESPathError, RecursionError, UnicodeEncodeError) as error:
            raise SkillError("The answer is not what the skill expects.") from error
        return SkillResult((Output(text or "Nothing was found.", TEXT, "text"), data))

    def _line(self, value: Any) -> str:
        line = ""
        for literal, expression in self._output:
            line += literal
            if expression is not None:
                found = expression.search(value)
                line += "" if found is None else value_text(found)
        return line


def _reported(response: HttpResponse, error: Any) -> SkillError:
    server = urlsplit(response.url).hostname
    if error is True:
        return SkillError(f"{server} reports an error.")
    return SkillError(f"{server} reports an error: {in_one_line(value_text(error)).rstrip('.')}.")


def _part(media_type: str, body: bytes) -> Output | File:
    if not media_type or media_type.startswith(_TEXTS) or media_type.endswith("+xml"):
        try:
            return Output(body.decode())
        except UnicodeDecodeError:
            if media_type.startswith(_TEXTS):
                return Output(body.decode("cp1252", "replace"))
    return File(body, media_type or "application/octet-stream")
