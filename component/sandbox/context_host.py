"""What a call in a confined child asks for, done through the Context of the call.

The child is not trusted: what it asks for is checked here and in the functions themselves.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from component.sandbox.messages import (
    Ask,
    AskCredential,
    AskHttp,
    AskLlm,
    AskMemory,
    AskOutput,
    AskPerson,
    AskProgress,
    AskSleep,
    AskStep,
    AskXmpp,
    DurableAsk,
)
from component.skills.context import Context
from component.skills.durable import Work
from component.skills.errors import CapabilityMissing
from component.skills.host import HostFunctions, LogLevel
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

    async def answer(self, ask: Ask) -> Any:
        """Run a host function, and return its value."""
        functions = self._functions
        match ask:
            case AskProgress():
                return await functions.progress(ask.fraction, ask.text)
            case AskOutput():
                return await self._context.output(ask.name, ask.text, ask.media_type, last=ask.last)
            case AskHttp():
                if functions.http is not None:
                    return await functions.http(ask.request)
                raise CapabilityMissing(self._skill, "network")
            case AskMemory():
                return await self._memory(ask)
            case AskCredential():
                if functions.credentials is not None:
                    return await functions.credentials.available(ask.name)
                raise CapabilityMissing(self._skill, "credential")
            case AskXmpp():
                if functions.xmpp is not None:
                    return await functions.xmpp.send(ask.to, ask.text, ask.key)
                raise CapabilityMissing(self._skill, "xmpp")
        raise AssertionError(f"{type(ask).__name__} is recorded")

    async def durable(self, ask: DurableAsk, work: Work[Any]) -> Any:
        """Run a function that is recorded."""
        context = self._context
        _check_key(ask.key)
        match ask:
            case AskLlm():
                if self._functions.llm is None:
                    raise CapabilityMissing(self._skill, "llm")
                return await self._functions.llm(ask.prompt, ask.schema, ask.max_tokens, ask.key)
            case AskStep():
                _check_key(ask.name)
                value: object = None if not ask.input else decoded_json(ask.input)
                return await context.step(
                    ask.name, work, Any, repeatable=ask.repeatable, key=ask.key, input=value
                )
            case AskSleep():
                _check_time(ask.seconds)
                return await context.sleep(ask.seconds, key=ask.key)
            case AskPerson():
                if ask.expires_s is not None:
                    _check_time(ask.expires_s)
                # The person sees whose question it is: nobody trusts this skill.
                question = f"{self._skill}: {ask.question[:_LONGEST_QUESTION]}"
                schema = msgspec.convert(decoded_json(ask.schema), dict[str, Any])
                return await context.ask(question, schema, expires_s=ask.expires_s, key=ask.key)

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
