"""Corrections and retractions of commands and of open questions with a whole service."""

from pathlib import Path

import anyio
import msgspec
import pytest

from component.skills import Context, Skill, skill
from tests.kit import Kit, Peer, Script, anyio_backend, call, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
SILENT = "[agent]\nnotice = ''\n"
LATE = "Your correction came too late: I have already carried out /run."


@skill(name="look", title="Look", read_only=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"{where} is empty."


class Size(msgspec.Struct, frozen=True):
    size: int


def changing(done: list[str]) -> list[Skill]:
    @skill(name="wipe", title="Wipe a disk", destructive=True)
    def wipe(disk: str) -> str:
        """Delete everything on a disk."""
        done.append(disk)
        return f"{disk} is wiped."

    @skill(name="buy", title="Buy", destructive=False)
    def buy(what: str) -> str:
        """Buy something."""
        done.append(what)
        return f"{what} is bought."

    @skill(name="order", title="Order", destructive=False, durable=True)
    async def order(context: Context, what: str, *, ask: bool = False) -> str:
        """Order something."""
        if ask:
            await context.ask("Which size?", Size)
        await context.sleep(100)
        done.append(what)
        return f"{what} is ordered."

    return [wipe, buy, look, order]


async def correct(juliet: Peer, id_: str, text: str) -> None:
    await juliet.send(
        f"<message to='{juliet._agent}' type='chat' id='after-{id_}'><body>{text}</body>"
        f"<replace xmlns='urn:xmpp:message-correct:0' id='{id_}'/></message>"
    )


async def retract(juliet: Peer, id_: str) -> None:
    await juliet.send(
        f"<message to='{juliet._agent}' type='chat' id='without-{id_}'>"
        f"<retract xmlns='urn:xmpp:message-retract:1' id='{id_}'/></message>"
    )


async def said(kit: Kit, juliet: Peer) -> list[str]:
    await kit.settled()
    return [one.text_of("body") or "" for one in juliet.take() if one.text_of("body")]


async def test_a_command_that_was_carried_out_is_not_corrected(tmp_path: Path) -> None:
    done: list[str] = []
    async with service(tmp_path, SILENT, skills=changing(done)) as kit:
        juliet = kit.peer(JULIET)
        assert "tea is bought" in await juliet.ask("/run buy what=tea")
        await correct(juliet, "juliet-1", "/run buy what=milk")
        (answer,) = await said(kit, juliet)
        assert answer.startswith(LATE)
        await retract(juliet, "juliet-1")
        (answer,) = await said(kit, juliet)
        assert "too late: I have already carried out /run" in answer
    assert done == ["tea"]


async def test_a_command_that_was_refused_or_only_reads_is_corrected(tmp_path: Path) -> None:
    async with service(tmp_path, SILENT, skills=[look]) as kit:
        juliet = kit.peer(JULIET)
        assert "There is no command" in await juliet.ask("/rnu look where=here")
        await correct(juliet, "juliet-1", "/run lok where=here")
        assert "Did you mean look" in await juliet.hear()
        await correct(juliet, "after-juliet-1", "/run look where=here")
        assert "here is empty" in await juliet.hear()
        await correct(juliet, "juliet-1", "/run look where=there")
        assert "there is empty" in await juliet.hear()
        await retract(juliet, "juliet-1")
        assert await said(kit, juliet) == []


@pytest.mark.parametrize("model", [None, Script()])
async def test_a_command_that_waits_for_an_answer_is_replaced(
    tmp_path: Path, model: Script | None
) -> None:
    done: list[str] = []
    async with service(tmp_path, SILENT, model=model, skills=changing(done)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run wipe disk=sda")
        assert any("sda" in one for one in await said(kit, juliet))
        await correct(juliet, "juliet-1", "/run wipe disk=sdb")
        assert any("sdb" in one for one in await said(kit, juliet))
        await anyio.sleep(60)
        await juliet.say("yes")
        assert "sdb is wiped" in await juliet.hear("wiped")
        await correct(juliet, "juliet-1", "/run wipe disk=sdc")
        assert (await juliet.hear("late")).startswith(LATE)
    assert done == ["sdb"]


@pytest.mark.parametrize("asks", ["true", "false"])
async def test_a_command_that_continues_as_a_task_is_replaced_until_a_step_has_begun(
    tmp_path: Path, asks: str
) -> None:
    done: list[str] = []
    async with service(tmp_path, SILENT, skills=changing(done)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say(f"/run order what=tea ask={asks}")
        await said(kit, juliet)
        await correct(juliet, "juliet-1", "/run order what=milk")
        answers = " ".join(await said(kit, juliet))
        assert ("too late" in answers) == (asks == "false")
        await anyio.sleep(300)
    assert done == (["milk"] if asks == "true" else ["tea"])


async def test_a_command_that_waits_for_an_answer_is_retracted(tmp_path: Path) -> None:
    done: list[str] = []
    async with service(tmp_path, SILENT, skills=changing(done)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("/run wipe disk=sda")
        await said(kit, juliet)
        await retract(juliet, "juliet-1")
        await said(kit, juliet)
        await anyio.sleep(60)
        await juliet.say("yes")
        await said(kit, juliet)
    assert done == []


async def test_a_refused_command_that_becomes_a_message_is_said_to_the_agent(
    tmp_path: Path,
) -> None:
    model = Script("Tea is nice.")
    async with service(tmp_path, SILENT, model=model) as kit:
        juliet = kit.peer(JULIET)
        assert "There is no command" in await juliet.ask("/tea")
        await correct(juliet, "juliet-1", "What about tea?")
        assert await juliet.hear() == "Tea is nice."
        await correct(juliet, "juliet-1", "What about milk?")
        assert "acted on what you wrote before" in await juliet.hear()


async def test_a_message_that_becomes_a_command_is_not_said_to_the_agent(tmp_path: Path) -> None:
    begun = anyio.Event()

    async def think(_request: object) -> str:
        begun.set()
        await anyio.sleep_forever()
        return ""

    async with service(tmp_path, SILENT, model=Script(think), skills=[look]) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("run look where=here")
        await begun.wait()
        await correct(juliet, "juliet-1", "/run look where=here")
        assert "here is empty" in await juliet.hear()
        assert await said(kit, juliet) == []


async def test_a_question_of_the_agent_follows_the_correction_of_the_message(
    tmp_path: Path,
) -> None:
    done: list[str] = []
    model = Script(call("wipe", disk="sda"), call("wipe", disk="sdb"), "It is wiped.")
    async with service(tmp_path, SILENT, model=model, skills=changing(done)) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Wipe sda")
        assert "sda" in await juliet.hear("sda")
        await correct(juliet, "juliet-1", "Wipe sdb")
        assert "sdb" in await juliet.hear("sdb")
        await anyio.sleep(60)
        await juliet.say("yes")
        assert await juliet.hear("It is") == "It is wiped."
        await correct(juliet, "juliet-1", "Wipe sdc")
        assert "came too late" in await juliet.hear("late")
    assert done == ["sdb"]
