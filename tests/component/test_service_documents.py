"""A whole service reads the documents of its agent, each in a process of its own."""

from pathlib import Path

import pytest

from benchmarks.pdfs import with_pages
from component.memory_directory.layout import SessionKey
from tests.kit import Script, service
from tests.kit.loop import real_time as anyio_backend
from tests.waiting import eventually
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


async def test_a_document_is_read_when_it_appears_and_recalled_with_its_source(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "memory" / "knowledge"
    folder.mkdir(parents=True)
    (folder / "handbook.pdf").write_bytes(
        with_pages(["Welcome to the company.", "Holidays: everybody has thirty days."])
    )
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    model = Script("Answer: thirty.")
    async with service(tmp_path, {"memory": {"path": tmp_path / "memory"}}, model=model) as kit:
        romeo = kit.peer("romeo@capulet.example/orchard")
        knowledge = kit.kernel.environment.memories.knowledge

        async def found() -> bool:
            who = JID.parse("romeo@capulet.example")
            return bool(await knowledge.recall(SessionKey("assistant", who), "holidays", 5))

        await eventually(found)
        await romeo.ask("How many days of holidays do I have?", "Answer: ")
        assert "everybody has thirty days" in model.asked
        assert "handbook.pdf, page 2" in model.asked
