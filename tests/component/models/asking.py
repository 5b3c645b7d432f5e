"""Requests for a model behind the scripted endpoint, and pauses that take no time."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from component.models.hosted import HostedModel
from component.models.messages import text_message
from component.models.protocol import ModelRequest, Tool

KEY = "sk-a-very-secret-key"
SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}}}


def tool(name: str) -> Tool:
    return Tool(name, f"What {name} does.", msgspec.Raw(json.dumps(SCHEMA).encode()))


def asking(text: str = "What time is it?", **more: Any) -> ModelRequest:
    return ModelRequest(messages=(text_message("user", text),), **more)


class Slept:
    """Pauses that take no time."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        await anyio.lowlevel.checkpoint()


Make = Callable[..., HostedModel]
