"""People list, show, share and delete their files, and admins those of others."""

from pathlib import Path

import pytest

from component import system
from tests.component.features.files.sending import JULIET, PNG, send, uploading
from tests.component.memory import office
from tests.kit import Script
from tests.kit.loop import real_time as anyio_backend

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

SECTIONS = {
    "agent": {"notice": "", "admins": ["nurse@capulet.example"]},
    "memory": {
        "scopes": [
            {"name": "team", "members": ["capulet.example"], "writers": ["juliet@capulet.example"]}
        ]
    },
}
FILES = {"letter.docx": office.docx("Dear Juliet"), "cat.png": PNG}


async def test_files_are_listed_shown_shared_and_deleted(tmp_path: Path) -> None:
    model = Script(otherwise="Thanks.")
    async with uploading(tmp_path, FILES, model, sections=SECTIONS) as (kit, uploads):
        juliet, romeo = kit.peer(JULIET), kit.peer("romeo@capulet.example/x")
        assert await juliet.ask("/files") == "There are no files."
        await send(juliet, [uploads.url(name) for name in FILES], "Keep them")
        await juliet.hear("Thanks.")
        listed = (await juliet.ask("/files")).splitlines()
        assert sorted(line.split(",")[0] for line in listed) == [
            "- cat.png: image/png",
            f"- letter.docx: {office_type()}",
        ]
        assert "letter" not in await juliet.ask("/files cat")
        shown = await juliet.ask("/files show letter.docx")
        assert "Dear Juliet" in shown
        assert uploads.url("letter.docx") in shown
        assert "There is no file dog.png" in await juliet.ask("/files show dog.png")

        assert "There is no scope enemies" in await juliet.ask("/files share cat.png enemies")
        assert await juliet.ask("/files share cat.png team") == (
            "Everybody in team can read cat.png now."
        )
        assert "- cat.png [team]: image/png" in await romeo.ask("/files")
        assert "You may not delete files of team" in await romeo.ask(
            "/files delete cat.png scope=team"
        )
        assert await juliet.ask("/files delete all") == "Deleted 2 files."
        assert "[team]" in await juliet.ask("/files")
        assert await juliet.ask("/files delete cat.png scope=team") == "Deleted cat.png."
        assert await romeo.ask("/files") == "There are no files."


async def test_files_are_deleted_by_forget_and_by_admins(tmp_path: Path) -> None:
    model = Script(otherwise="Thanks.")
    async with uploading(tmp_path, FILES, model, sections=SECTIONS) as (kit, uploads):
        juliet, nurse = kit.peer(JULIET), kit.peer("nurse@capulet.example/x")
        await send(juliet, [uploads.url(name) for name in FILES], "Keep them")
        await juliet.hear("Thanks.")
        assert "cat.png" in await nurse.ask("/person-files juliet@capulet.example")
        assert await nurse.ask("/person-files juliet@capulet.example delete=cat.png") == (
            "Deleted cat.png."
        )
        assert "There is no command /person-files" in await juliet.ask("/person-files x@y")
        assert "1 attachment" in await juliet.ask("/forget")
        assert await juliet.ask("/files") == "There are no files."


async def test_the_files_are_a_form_too(tmp_path: Path) -> None:
    async with uploading(tmp_path, FILES, Script(otherwise="Thanks.")) as (kit, uploads):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("cat.png")])
        await juliet.hear("Thanks.")
        answer = await juliet.iq(
            "set",
            "<command xmlns='http://jabber.org/protocol/commands' node='command/files'"
            " action='execute'/>",
        )
        assert answer.type == "result"


async def test_old_files_are_deleted(tmp_path: Path) -> None:
    async with uploading(tmp_path, FILES, Script(otherwise="Thanks."), keep_days=1) as (
        kit,
        uploads,
    ):
        juliet = kit.peer(JULIET)
        await send(juliet, [uploads.url("cat.png")])
        await juliet.hear("Thanks.")
        stored = kit.kernel.environment.memories.files
        assert await stored.expire(system.time() - 86_400) == 0
        assert await stored.expire(system.time() + 1) == 1
        assert await juliet.ask("/files") == "There are no files."


def office_type() -> str:
    """Return the media type of documents of Word."""
    return "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
