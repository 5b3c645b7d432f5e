"""The kit can fail: it passes an agent that keeps to Core, and catches each broken one.

The kit and the agent are in one event loop, whose clock jumps ahead when both wait: what a check
waits for in vain takes no time, and a busy machine does not turn an answer into a late one.
"""

import inspect
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import anyio
import pytest
import trio
from trio.testing import MockClock

from conformance.checks import all_checks
from conformance.drivers.acceptor import AcceptorDriver
from conformance.model import Outcome, ProfileStatus, Run, Status
from conformance.requirements import load
from conformance.runner import Plan, run
from conformance.selection import select
from conformance.skills_map import fixtures
from tests.conformance import small_agent
from tests.conformance.broken import DEFECTS
from tests.conformance.small_agent import (
    CALLER,
    DOMAIN,
    REFUSED,
    SECRET,
    STRANGER,
    SmallAgent,
    served,
)
from tests.conformance.small_delegating import DEFECTS as DELEGATING
from tests.conformance.small_delegating import DelegatingAgent
from tests.conformance.small_further import DEFECTS as FURTHER
from tests.conformance.small_further import FurtherAgent

pytestmark = pytest.mark.anyio
SPECIFICATION = load()
ALL = DEFECTS | FURTHER | DELEGATING
WRONG = (Status.BROKEN, Status.WARNING)
# What makes the stanzas that watches look at, where no check is about the requirement itself.
PROVOKED_BY = {
    "COM-002": ["errors.each"],
    "ERR-002": ["errors.each"],
    "ERR-003": ["attack.flood"],
    "ERR-004": ["errors.each"],
    "ERR-005": ["errors.each"],
    "I18-001": ["skills.view"],
}


BEGAN = datetime.now(UTC)


class Jumping(datetime):
    """The time of day by the clock that jumps."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return (BEGAN + timedelta(seconds=trio.current_time())).astimezone(tz)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.fixture(autouse=True)
def _time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in list(sys.modules.items()):
        ours = name.startswith(("conformance.checks.", "tests.conformance.small_"))
        if ours and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", Jumping)


async def judge(
    defect: str = "",
    words: Iterable[str] = (),
    timeout_s: float = 3.0,
    at: str = "assistant@",
    agent: type[SmallAgent] | None = None,
) -> Run:
    if agent is None:
        agent = FurtherAgent if defect in FURTHER else SmallAgent
        agent = DelegatingAgent if defect in DELEGATING else agent
    async with served(agent(defect)) as stream:
        driver = AcceptorDriver(
            DOMAIN,
            SECRET,
            caller=CALLER,
            stranger=STRANGER,
            refused=REFUSED,
            stream=stream,
            hostile=True,
        )
        selection = select(words, SPECIFICATION, all_checks())
        address = f"{at}{DOMAIN}"
        return await run(Plan(address, SPECIFICATION, selection, fixtures(), timeout_s), driver)


def told(found: Run) -> str:
    lines = [
        f"{one.name} {one.outcome.value}: {one.reason} {one.findings}"
        for one in found.results
        if one.outcome not in (Outcome.PASSED, Outcome.UNCLAIMED)
    ]
    return "\n".join(lines)


async def test_an_agent_that_keeps_to_core_passes() -> None:
    async with anyio.create_task_group() as group:
        for at in ("", "assistant@"):
            group.start_soon(_passes, at)


async def _passes(at: str) -> None:
    found = await judge(at=at)
    bad = [one for one in found.verdicts.values() if one.status in WRONG]
    assert not bad, told(found)
    assert not found.faults
    assert found.profiles["core"] in (ProfileStatus.HOLDS, ProfileStatus.PARTLY), told(found)
    assert found.profiles["confirm"] in (ProfileStatus.NOT_CLAIMED, ProfileStatus.NOT_JUDGED)
    assert found.good


async def test_an_agent_that_keeps_to_delegation_and_memory_passes() -> None:
    words = ["delegation", "memory", "pubsub.skills-node", "pubsub.skills-change", "SKL-002"]
    found = await judge(words=words, agent=DelegatingAgent)
    bad = [one for one in found.verdicts.values() if one.status in WRONG]
    assert not bad, told(found)
    assert found.profiles["memory"] is ProfileStatus.HOLDS, told(found)
    assert found.profiles["delegation"] is ProfileStatus.HOLDS, told(found)


async def test_broken_agents_are_caught_and_the_requirement_named() -> None:
    missed = [reason for defect in ALL for reason in await _missed(defect)]
    assert not missed, "\n\n".join(missed)


async def _missed(defect: str) -> list[str]:
    """What the kit should have said of a broken agent and did not."""
    id_ = ALL[defect]
    at = "" if id_ == "DSC-003" else "assistant@"
    words = [id_, *PROVOKED_BY.get(id_, ())]
    found = await judge(defect, words, at=at)
    verdict = found.verdicts[id_]
    profile = found.profiles[SPECIFICATION.by_id[id_].profile]
    named = verdict.status in WRONG and not found.faults
    if named and (profile is ProfileStatus.FAILS or verdict.status is Status.WARNING):
        return []
    return [f"{defect}: {id_} is {verdict.status.value}, {profile.value}\n{told(found)}"]


async def test_each_defect_is_one_that_the_agent_knows() -> None:
    agents = (FurtherAgent, DelegatingAgent)
    source = inspect.getsource(small_agent) + "".join(inspect.getsource(one) for one in agents)
    assert not [defect for defect in ALL if f'"{defect}"' not in source]
