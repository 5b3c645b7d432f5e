"""An agent in a process of its own, which talks with a hostile provider.

    python -m tests.hostile.provider_child BACKEND URL DIRECTORY

Standard input has a JSON list for each attack: its name, and the seconds of its time-out. For each
it has a turn in which the provider attacks, and an honest one, and says in a line of JSON
what came of them.
"""

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog

from component.app.schema import SCHEMA
from component.budget.book import BudgetBook
from component.budget.protocol import BudgetLimits
from component.config.llm import ModelChoice
from component.memory_directory.layout import SessionKey
from component.models.catalog import resolve
from component.models.hosted import HostedModel
from component.store import Storage
from tests.component.agent.world import World, message
from tests.component.audit.book import Book
from tests.hostile.provider_attacks import KEY, SPELLINGS
from xep.characters import without_forbidden
from xep.jid import JID

_BROKEN = {"a turn failed", "a message cannot be answered", "a tool failed"}


class Talk:
    """The agent, and one model for each time-out and each dialect."""

    def __init__(self, url: str, directory: Path) -> None:
        self.world = World(directory)
        self.steps = 0
        self._url = url
        self._models: dict[tuple[float, str], HostedModel] = {}
        self._model: HostedModel
        self._turns = 0
        self.world.model_of = lambda _profile: self._model  # type: ignore[assignment,method-assign]

    async def beat(self) -> None:
        """Count how often others have a turn."""
        while True:
            await anyio.sleep(0.0005)
            self.steps += 1

    def set_timeout(self, seconds: float, dialect: str = "chat") -> None:
        """Use a model that is waited for so long."""
        if (seconds, dialect) not in self._models:
            choice = ModelChoice(
                provider="openrouter",  # which tells costs
                model="m",
                dialect=dialect,  # type: ignore[arg-type]  # one of the names
                base_url=self._url,
                api_key=KEY,  # type: ignore[arg-type]  # pydantic makes a secret of it
                timeout_s=seconds,
                first_token_timeout_s=seconds / 2,
                token_timeout_s=seconds / 2,
                retries=0,
                usd_per_million_in=1.0,
                usd_per_million_out=1.0,
            )
            self._models[seconds, dialect] = HostedModel(resolve(choice, "llm"))
        self._model = self._models[seconds, dialect]

    async def turn(self, text: str) -> dict[str, Any]:
        """Have a turn with somebody new."""
        self._turns += 1
        who = JID(f"romeo{self._turns}", "example.org", None)
        began, heard = self.steps, len(self.world.ear.said)
        await self.world.conversations.received(message(f"m{self._turns}", text, who=who))
        await self.world.ear.hears(heard + 1, within_s=120)
        said = self.world.ear.bodies[heard:]
        found = await self.world.sessions.read(SessionKey("assistant", who), tokens=10**9)
        unfit = [
            text
            for text in (*said, *_texts(msgspec.json.decode(msgspec.json.encode(found.lines))))
            if text != without_forbidden(text)
        ]
        return {"said": said, "steps": self.steps - began, "unfit": unfit}

    async def close(self) -> None:
        for model in self._models.values():
            await model.aclose()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _has_key(text: str) -> bool:
    """Whether a text has the key, with any other characters between its own."""
    plain, *spellings = (
        "".join(filter(str.isalnum, each.casefold())) for each in (text, *SPELLINGS.values())
    )
    return any(each in plain for each in spellings)


async def main(url: str, directory: Path) -> None:
    """Talk until standard input ends."""
    logs: list[dict[str, Any]] = []

    def note(_logger: Any, _method: str, event: Any) -> Any:
        logs.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[note])
    talk = Talk(url, directory)
    async with (
        Storage.open(SCHEMA, directory / "spent") as storage,
        anyio.create_task_group() as group,
    ):
        book = BudgetBook(storage, BudgetLimits(), Book())
        talk.world.purse = book  # type: ignore[assignment]  # the real one
        await group.start(book.run)
        group.start_soon(talk.beat)
        talk.set_timeout(60.0)
        async with talk.world.life():
            while line := await anyio.to_thread.run_sync(sys.stdin.readline):
                name, timeout_s = json.loads(line)
                logs.clear()
                dialect = name.partition(": ")[0]
                dialect = dialect if dialect in ("messages", "responses") else "chat"
                talk.set_timeout(timeout_s, dialect)
                attacked = await talk.turn(f"attack: {name}")
                talk.set_timeout(60.0, dialect)
                after = await talk.turn("What time is it?")
                rows = await book.report()
                told = {
                    "attacked": attacked,
                    "after": after,
                    "keys": [text for text in _texts(logs) if _has_key(text)],
                    "broken": [one for one in logs if one["event"] in _BROKEN],
                    "tokens": max(row.tokens for row in rows),
                    "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                }
                print(json.dumps(told, default=str), flush=True)
        await talk.close()
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, sys.argv[2], Path(sys.argv[3]), backend=sys.argv[1])
