"""The command about watches."""

from collections.abc import Sequence
from typing import Any

import pytest

from component.commands import OPERATOR, Asking, CommandError, read_words
from component.features.watches.commands import WATCH, watch_commands
from component.features.watches.service import WatchSheet
from xep.jid import JID

pytestmark = pytest.mark.anyio

JULIET = Asking(principal=JID.parse("juliet@example.com"))
ROMEO = Asking(principal=JID.parse("romeo@example.com"))


def sheet(name: str, owner: str = "", **more: Any) -> WatchSheet:
    return WatchSheet(
        id=f"{owner}/{name}" if owner else name,
        name=name,
        owner=owner,
        agent="assistant",
        service="pubsub.example.com",
        node="builds",
        work="Say which one.",
        rate="10 in 60 s, then digest",
        **{"state": "active"} | more,
    )


class Desk:
    def __init__(self) -> None:
        self.sheets = [
            sheet("builds"),
            sheet("mood", "juliet@example.com", subscription="refused", reason="Not allowed yet."),
            sheet("mood", "romeo@example.com"),
        ]
        self.done: list[tuple[str, str]] = []

    async def list(self, owner: str | None) -> Sequence[WatchSheet]:
        return [one for one in self.sheets if owner is None or one.owner == owner]

    async def pause(self, id_: str) -> bool:
        self.done.append(("pause", id_))
        return True

    async def resume(self, id_: str) -> bool:
        self.done.append(("resume", id_))
        return True

    async def remove(self, id_: str) -> bool:
        self.done.append(("remove", id_))
        return True


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def run(desk: Desk, asking: Asking, words: str) -> Any:
    (command,) = watch_commands(desk)
    return await command.run(asking, read_words(WATCH, words))


async def test_people_see_their_own(desk: Desk) -> None:
    answer = await run(desk, JULIET, "")
    assert answer.text == "- mood (refused): node builds of pubsub.example.com"
    assert [one.owner for one in answer.value] == ["juliet@example.com"]
    assert "Not allowed yet." in (await run(desk, JULIET, "show mood")).text
    nobody = Asking(principal=JID.parse("nobody@example.com"))
    assert "I watch nothing for you" in (await run(desk, nobody, "list")).text


async def test_people_change_their_own_only(desk: Desk) -> None:
    for action in ("pause", "resume", "remove"):
        answer = await run(desk, JULIET, f"{action} mood")
        assert "mood" in answer.text
    assert desk.done == [
        (action, "juliet@example.com/mood") for action in ("pause", "resume", "remove")
    ]
    for name in ("builds", "romeo@example.com/mood", "other"):
        with pytest.raises(CommandError, match="There is no watch"):
            await run(desk, JULIET, f"remove {name}")


async def test_operators_see_and_change_all(desk: Desk) -> None:
    assert len((await run(desk, OPERATOR, "")).value) == 3
    await run(desk, OPERATOR, "pause builds")
    await run(desk, OPERATOR, "remove romeo@example.com/mood")
    assert desk.done == [("pause", "builds"), ("remove", "romeo@example.com/mood")]
    with pytest.raises(CommandError, match="There are several"):
        await run(desk, OPERATOR, "pause mood")
    with pytest.raises(CommandError, match="in the settings"):
        await run(desk, OPERATOR, "remove builds")


async def test_a_name_is_needed(desk: Desk) -> None:
    with pytest.raises(CommandError, match="Say which one"):
        await run(desk, JULIET, "pause")
    with pytest.raises(CommandError, match="only over XMPP"):
        await run(desk, Asking(), "")
