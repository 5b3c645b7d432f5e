"""Cancelling a request whose answer, which names the task, has not come yet."""

from pathlib import Path

import anyio
import pytest

from component.skills import Context, skill
from tests.kit import Kit, Peer, anyio_backend, service
from xep.binding import encode
from xep.fluux_agent.errors import CONDITIONS
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.fluux_agent.task import Cancel, Task
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ALICE = "alice@capulet.example/phone"
ENDED: list[str] = []


@skill(read_only=True, open_world=False)
async def slow(context: Context) -> str:
    """Take a long time."""
    try:
        await anyio.sleep(500)
    finally:
        ENDED.append(context.principal)
    return "At last."


@skill(open_world=False, destructive=False)
async def pay() -> str:
    """Pay, which takes a long time."""
    await anyio.sleep(500)
    return "Paid."


async def begin(alice: Peer, name: str, mode: str = "auto") -> str:
    """Send a request, and return the id of its IQ."""
    request = encode(Execute(skill=name, request="r1", mode=mode))  # type: ignore[arg-type]
    await alice.send(f"<iq type='set' id='e1' to='agent.capulet.example'>{request}</iq>")
    return "e1"


async def answer(alice: Peer, id_: str) -> Incoming:
    return await alice.receive(lambda stanza: stanza.kind == "iq" and stanza.id == id_)


async def cancel(peer: Peer, request: str = "r1") -> Incoming:
    return await peer.iq("set", encode(Cancel(request=request)))


def condition(stanza: Incoming) -> str:
    return stanza.error(CONDITIONS).application[0].xml.local


async def states(kit: Kit) -> list[str]:
    return [row[0] for row in await kit.kernel.storage.select("SELECT state FROM tasks")]


@pytest.mark.parametrize(("name", "end"), [("slow", "cancelled"), ("pay", "failed")])
async def test_a_request_without_an_answer_is_cancelled_by_its_name(
    tmp_path: Path, name: str, end: str
) -> None:
    ENDED.clear()
    async with service(tmp_path, skills=(slow, pay)) as kit:
        alice = kit.peer(ALICE)
        before = kit.system.monotonic()
        id_ = await begin(alice, name)
        await kit.settled()
        task = (await cancel(alice)).require(Task)
        accepted = (await answer(alice, id_)).require(Accepted)
        assert (task.id, task.state) == (accepted.task, "cancelling")
        await kit.settled()
        assert kit.system.monotonic() - before < 0.5
        # Whether an interrupted payment was made is not known.
        assert await states(kit) == [end]
        assert len(ENDED) == (1 if name == "slow" else 0)
        # The same request again gets the same task, and nothing runs.
        await begin(alice, name)
        assert (await answer(alice, id_)).require(Accepted).task == accepted.task


async def test_nobody_else_can_cancel_a_request(tmp_path: Path) -> None:
    async with service(tmp_path, skills=(slow,)) as kit:
        alice, bob = kit.peer(ALICE), kit.peer("bob@capulet.example/1")
        await begin(alice, "slow")
        await kit.settled()
        assert condition(await cancel(bob)) == "unknown-task"
        assert condition(await cancel(alice, "r2")) == "unknown-task"
        assert await states(kit) == []


async def test_a_request_in_mode_inline_has_no_task(tmp_path: Path) -> None:
    async with service(tmp_path, skills=(slow,)) as kit:
        alice = kit.peer(ALICE)
        id_ = await begin(alice, "slow", "inline")
        await kit.settled()
        assert condition(await cancel(alice)) == "unknown-task"
        assert condition(await answer(alice, id_)) == "timeout"


async def test_the_task_of_an_answered_request_is_cancelled_by_its_name_too(tmp_path: Path) -> None:
    async with service(tmp_path, skills=(slow,)) as kit:
        alice = kit.peer(ALICE)
        id_ = await begin(alice, "slow", "async")
        accepted = (await answer(alice, id_)).require(Accepted)
        assert (await cancel(alice)).require(Task).id == accepted.task


async def test_a_result_needs_no_cancellation(tmp_path: Path) -> None:
    @skill(read_only=True, open_world=False)
    async def quick() -> str:
        """Be quick."""
        return "Done."

    async with service(tmp_path, skills=(quick,)) as kit:
        alice = kit.peer(ALICE)
        id_ = await begin(alice, "quick")
        assert (await answer(alice, id_)).require(Result)
        assert condition(await cancel(alice)) == "unknown-task"


@pytest.mark.parametrize("given", ["", " id='t1' request='r1'", " request='a b'"])
async def test_a_cancellation_names_a_task_or_a_request(tmp_path: Path, given: str) -> None:
    async with service(tmp_path, skills=(slow,)) as kit:
        alice = kit.peer(ALICE)
        wrong = f"<cancel xmlns='urn:fluux:agent:0#task'{given}/>"
        assert condition(await alice.iq("set", wrong)) == "malformed"
