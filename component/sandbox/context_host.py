"""What a call in a confined child asks for, done through the Context of the call.

The child is not trusted: what it asks for is checked here and in the functions themselves.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from component.sandbox.messages import (
    AskCredential,
    AskHttp,
    AskMemory,
    AskXmpp,
    HostFunction,
    RecordedFunction,
)
from component.skills.context import Context
from component.skills.errors import CapabilityMissing
from component.skills.host import HostFunctions, LogLevel
from component.skills.operations import (
    AskModel,
    AskPrincipal,
    PublishPart,
    ReportProgress,
    RunStep,
    Sleep,
    Work,
)
from xep.binding.json_bounds import decoded_json

_LONGEST_QUESTION: Final = 2_000
_LONGEST_KEY: Final = 200
_LONGEST_TIME_S: Final = 366 * 86_400.0


class ContextHost:
    """Implements `CallHost` with the Context of a call. What is not declared ends the call.

    Args:
        skill: the name of the skill.
        context: of its call.
        functions: those that it may use.
    """

    def __init__(self, skill: str, context: Context, functions: HostFunctions) -> None:
        self._skill = skill
        self._context = context
        self._functions = functions

    def log(self, level: LogLevel, text: str) -> None:
        """Write a line to the log."""
        self._functions.log(level, text)

    async def answer(self, what: HostFunction) -> Any:
        """Run a host function, and return its value."""
        functions = self._functions
        match what:
            case ReportProgress():
                return await functions.progress(what.fraction, what.text)
            case PublishPart():
                context = self._context
                return await context.output(what.name, what.text, what.media_type, last=what.last)
            case AskHttp():
                if functions.http is not None:
                    return await functions.http(what.request)
                raise CapabilityMissing(self._skill, "network")
            case AskMemory():
                return await self._memory(what)
            case AskCredential():
                if functions.credentials is not None:
                    return await functions.credentials.available(what.name)
                raise CapabilityMissing(self._skill, "credential")
            case AskXmpp():
                if functions.xmpp is not None:
                    return await functions.xmpp.send(what.to, what.text, what.key)
                raise CapabilityMissing(self._skill, "xmpp")
        raise AssertionError(f"{type(what).__name__} is recorded")

    async def durable(self, what: RecordedFunction, work: Work[Any]) -> Any:
        """Run a function that is recorded."""
        context, key = self._context, what.key
        _check_key(key)
        match what:
            case AskModel():
                if self._functions.llm is None:
                    raise CapabilityMissing(self._skill, "llm")
                schema = what.schema.decode(errors="replace")
                return await self._functions.llm(what.prompt, schema, what.max_tokens, key)
            case RunStep():
                _check_key(what.name)
                value: object = None if not what.input else decoded_json(what.input)
                return await context.step(
                    what.name, work, Any, repeatable=what.repeatable, key=key, input=value
                )
            case Sleep():
                _check_time(what.seconds)
                return await context.sleep(what.seconds, key=key)
            case AskPrincipal():
                if what.expires_s is not None:
                    _check_time(what.expires_s)
                # The person sees whose question it is: nobody trusts this skill.
                question = f"{self._skill}: {what.question[:_LONGEST_QUESTION]}"
                wanted = msgspec.convert(decoded_json(what.schema), dict[str, Any])
                return await context.ask(question, wanted, expires_s=what.expires_s, key=key)

    async def _memory(self, ask: AskMemory) -> Any:
        memory = self._functions.memory
        if memory is None:
            raise CapabilityMissing(self._skill, "memory")
        match ask.what:
            case "get":
                return await memory.get(ask.key)
            case "put":
                return await memory.put(ask.key, ask.value)
            case "delete":
                return await memory.delete(ask.key)
            case "keys":
                return await memory.keys(ask.key)


def _check_key(key: str | int | None) -> None:
    """Raise ValueError for the name or key of a step that no journal can have."""
    if len(str(key)) > _LONGEST_KEY:
        raise ValueError(f"the name or key of a step has more than {_LONGEST_KEY} characters")


def _check_time(seconds: float) -> None:
    if not 0 <= seconds <= _LONGEST_TIME_S:
        raise ValueError(f"{seconds} is not a time from 0 to {_LONGEST_TIME_S:,.0f} seconds")
