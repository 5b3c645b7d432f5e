"""A conversation of many messages whose process is killed at many random points.

Whatever happens, prompts grow only at their end between compactions, each message is answered once,
and no tool runs twice.
"""

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import anyio
import pytest

from component.agent import compaction, prompt
from component.agent.conversations import Conversations
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from tests.component.agent.test_crash import all_killed, end_tasks
from tests.component.agent.world import ROMEO, World, message, remembered, says, shopping, words
from tests.profiles import THOROUGH

pytestmark = pytest.mark.anyio

MESSAGES: Final = 200 if THOROUGH else 40
KILLS: Final = 100 if THOROUGH else 25
_WAITING: Final = 5
"""Messages that a person leaves unanswered before waiting for the answers."""
_TOOLS: Final = ((), ("look",), ("look", "buy"), ("order",), ("find", "look", "find"))


class Campaign:
    """A person who writes many messages to a service that is killed repeatedly.

    Attributes:
        kills: how often it was killed.
        acknowledged: how many messages it has taken.
        lives: how many processes there were.
        sent: what it sent, with the number of the process.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.world = World(path, tool_result_tokens=200)
        self.world.history_tokens = 1500
        self.world.shop.taint = "web"
        self.world.shop.result = lambda name, arguments: f"{name} {arguments} " + "and more, " * 90
        self.world.brain.think = self.think
        self.kills = self.lives = 0
        self.random = Random(seed)
        self.acknowledged = 0
        self.sent: list[tuple[int, str]] = []

    def think(self, request: ModelRequest) -> Completion:
        if request.messages[0].text in (compaction.SUMMARISE, compaction.SUMMARISE_WORK):
            return says(f"Summary number {len(self.world.brain.asked)}.")
        if "have just ended" in request.messages[-1].text:
            return says("It has come.")
        number = re.findall(r"^Message number (\d+)", "\n".join(words(request)), re.MULTILINE)[-1]
        return shopping(*_TOOLS[int(number) % len(_TOOLS)])(request)

    async def run(self) -> None:
        """Write all messages, in as many runs as needed."""
        is_over = False
        while not is_over:
            world = self.world
            world.death.points, world.death.at, world.death.dead = 0, None, False
            try:
                async with world.built() as conversations, anyio.create_task_group() as group:
                    rows = await world.rows()
                    if self.kills < KILLS:
                        world.death.at = world.death.points + self.random.randint(1, 45)
                    await group.start(conversations.run)
                    group.start_soon(end_tasks, world, conversations)
                    await self._write(conversations, rows)
                    await world.settled()
                    is_over = True
                    group.cancel_scope.cancel()
            except BaseException as error:
                if not (world.death.dead and all_killed(error)):
                    raise
                self.kills += 1
            self.lives += 1
            new = world.ear.said[len(self.sent) :]
            self.sent += [(self.lives, reply.id) for reply in new]

    async def _write(self, conversations: Conversations, rows: list[str]) -> None:
        if len(rows) > _WAITING:
            await self.world.settled()
        while self.acknowledged < MESSAGES:
            number = self.acknowledged
            turn = f"m{number}"
            if turn not in rows:
                self.world.memories.found = [remembered("k", "", f"memory {number}", taint="file")]
                await conversations.received(message(turn, f"Message number {number}."))
            self.acknowledged += 1
            if self.random.random() < 0.8:  # otherwise the next one comes at once
                await self.world.settled()


def _difference(earlier: ModelRequest, later: ModelRequest) -> str:
    """The index at which a request differs from the previous one."""
    pairs = zip(earlier.messages, [*later.messages, None], strict=False)
    at = next(at for at, (one, other) in enumerate(pairs) if one != other)
    shown = [(one.role, one.text[:200]) for one in later.messages[at : at + 3]]
    return (
        f"at {at}: {[(one.role, one.text[:200]) for one in earlier.messages[at:]]} became {shown}"
    )


@pytest.mark.parametrize("seed", range(2 if THOROUGH else 1))
async def test_prompts_grow_at_their_end_and_no_part_is_sent_twice(
    tmp_path: Path, seed: int
) -> None:
    campaign = Campaign(tmp_path, seed)
    await campaign.run()
    world = campaign.world
    assert campaign.kills >= KILLS
    async with world.built():
        key = SessionKey("assistant", ROMEO)
        turns = [await world.sessions.turn(key, f"m{number}") for number in range(MESSAGES)]
    said = [[line for line in lines if isinstance(line, Said)] for lines in turns]
    asked = {lines[0].turn: len([one for one in lines if one.role == "user"]) for lines in said}
    assert asked == {f"m{number}": 1 for number in range(MESSAGES)}

    summaries = 0
    earlier: ModelRequest | None = None
    summed_up = False
    for request in world.brain.asked:
        if request.messages[0].text in (compaction.SUMMARISE, compaction.SUMMARISE_WORK):
            summaries += 1
            summed_up = True
            continue
        if earlier is not None and request.messages[: len(earlier.messages)] != earlier.messages:
            assert summed_up, _difference(earlier, request)
        assert earlier is None or request.tools == earlier.tools
        earlier, summed_up = request, False
    assert 1 <= summaries <= len(world.brain.asked) // 4

    answers = [reply for reply in world.ear.said if reply.id.endswith(".answer")]
    sent = Counter(reply.id for reply in answers)
    # Sent again only by the next process, with the same id, if the last one was killed before it
    # had written down that the answer was on its way.
    assert max(Counter(campaign.sent).values()) == 1
    assert len({(reply.id, reply.text) for reply in answers}) == len(sent)
    final = {f"{one.turn}.answer": one.content for lines in said for one in lines if one.final}
    assert {reply.id: reply.text for reply in answers} == final
    made = Counter((turn, call_id) for turn, call_id, _, _ in world.shop.made)
    assert set(made.values()) == {1}
    shown = [one.text for request in world.brain.asked for one in request.messages]
    assert not any(prompt.LEFT_OUT in text for text in shown)
