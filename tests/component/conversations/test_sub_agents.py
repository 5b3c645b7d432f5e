"""Unused directories of sub-agents, and their removal."""

import os
from pathlib import Path

import pytest

from component.conversations import directories
from component.memory_directory.files import MemoryStoreError, open_root
from component.memory_directory.layout import Layout, SessionKey
from xep.jid import JID

ANN = JID.parse("ann@example.com")
NOON = 1_795_521_600


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(open_root(tmp_path / "memory"))


def written(layout: Layout, agent: str, when: float, name: str = "history.jsonl") -> Path:
    """Create a file of the agent's conversation with Ann; return its directory."""
    folder = layout.folder(SessionKey(agent, ANN))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    os.utime(folder / name, (when, when))
    return folder


def left(layout: Layout, before: float = NOON) -> list[str]:
    return [
        each.relative_to(layout.root).as_posix()
        for each in directories.unused_sub_agents(layout, before)
    ]


def test_unused_sub_agents_of_all_agents_are_found(layout: Layout) -> None:
    assert left(layout) == []
    written(layout, "assistant", NOON - 9)
    written(layout, "assistant/helper-00000001", NOON - 1)
    written(layout, "assistant/helper-00000002", NOON)
    written(layout, "reader", NOON - 9)
    written(layout, "reader/counter-00000003", NOON - 9)
    found = ["_sub/helper-00000001", "_agents/reader/_sub/counter-00000003"]
    assert left(layout) == found


def test_the_latest_file_includes_those_of_nested_sub_agents(layout: Layout) -> None:
    written(layout, "assistant/helper-00000001", NOON - 9)
    written(layout, "assistant/helper-00000001", NOON + 1, "knowledge.jsonl")
    written(layout, "assistant/helper-00000002", NOON - 9)
    written(layout, "assistant/helper-00000002/helper-00000003", NOON + 1)
    assert left(layout) == []
    assert left(layout, NOON + 2) == ["_sub/helper-00000001", "_sub/helper-00000002"]


def test_a_directory_without_files_is_as_old_as_itself(layout: Layout) -> None:
    folder = layout.root / "_sub" / "helper-00000001"
    folder.mkdir(parents=True)
    os.utime(folder, (NOON, NOON))
    assert left(layout, NOON) == []
    assert left(layout, NOON + 1) == ["_sub/helper-00000001"]


def test_other_directories_are_not_touched(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    subs = layout.root / "_sub"
    for name in ("mine", ".git", "helper-00000001x", "Helper-00000001"):
        (subs / name).mkdir(parents=True)
    (subs / "helper-00000002").touch()
    (subs / "helper-00000003").symlink_to(tmp_path / "elsewhere")
    assert left(layout, float("inf")) == []


def test_a_link_in_place_of_a_directory_is_refused(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "helper-00000001").mkdir()
    (layout.root / "_sub").symlink_to(tmp_path)
    with pytest.raises(MemoryStoreError, match="symbolic link"):
        left(layout, float("inf"))


@pytest.mark.parametrize(
    ("agent", "who", "needed"),
    [
        ("reader", "ann@example.com", True),
        ("reader", "bob@example.com", False),
        ("assistant", "ann@example.com", False),
    ],
)
def test_a_sub_agent_is_used_while_its_turn_is_unanswered(
    layout: Layout, agent: str, who: str, needed: bool
) -> None:
    folder = written(layout, "reader/helper-00000001", NOON).parent
    unanswered = {SessionKey(agent, JID.parse(who))}
    assert directories.is_used_sub_agent(layout, folder, unanswered) is needed
    assert not directories.is_used_sub_agent(layout, folder, ())


def test_a_sub_agent_is_removed_completely_and_no_other(layout: Layout, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    above = written(layout, "assistant", NOON, "knowledge.jsonl")
    other = written(layout, "assistant/helper-00000002", NOON, "knowledge.jsonl")
    inner = written(layout, "assistant/helper-00000001/helper-00000003", NOON, "knowledge.jsonl")
    folder = written(layout, "assistant/helper-00000001", NOON).parent
    (folder / "link").symlink_to(outside)
    owner = inner.relative_to(layout.root).as_posix()
    assert directories.remove_sub_agent(layout, folder) == [owner]
    assert not folder.exists()
    assert above.exists()
    assert other.exists()
    assert (outside / "file").exists()
    assert directories.remove_sub_agent(layout, folder) == []
