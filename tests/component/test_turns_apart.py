"""What one principal said, wrote down or had remembered never reaches a turn of another's."""

import itertools
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.memory.knowledge import Memo
from component.memory_directory.layout import SessionKey
from component.models.protocol import ModelRequest
from tests.kit import Script, anyio_backend, service
from tests.profiles import examples
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

WHO = [JID.parse(name) for name in ("ann@a.example", "bob@a.example", "ann@a.example.org")]
AGENTS = ("assistant", "researcher")
MARK = re.compile(r"mark\d+mark")

_deeds = st.lists(
    st.tuples(
        st.sampled_from(("say", "say", "store", "user.md", "memory.md", "identity.md", "new")),
        st.sampled_from(AGENTS),
        st.sampled_from(WHO),
    ),
    min_size=4,
    max_size=16,
)


@examples(5, 250)
@given(deeds=_deeds)
async def test_turns_stay_apart(deeds: list[tuple[str, str, JID]]) -> None:
    marks = (f"mark{number}mark" for number in itertools.count())
    mine: dict[SessionKey, set[str]] = {}
    files: dict[SessionKey, dict[str, str]] = {}
    seen: list[set[str]] = []

    def answer(request: ModelRequest) -> str:
        seen.append(set(MARK.findall(str(request))))
        return f"{next(marks)} is what I say about it."

    agent = {"allowed_domains": sorted({who.domain for who in WHO})}
    settings = {"agent": agent, "agents": [{"name": name} for name in AGENTS]}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        async with service(path, settings, model=Script(otherwise=answer)) as kit:
            peers = {who: kit.peer(f"{who}/home") for who in WHO}
            memories, agents = kit.kernel.environment.memories, kit.kernel.agents
            assert agents is not None
            for number, (deed, name, who) in enumerate(deeds):
                key = SessionKey(name, who)
                own = mine.setdefault(key, set())
                mark = next(marks)
                folder = memories.layout.folder(key)
                if deed == "new":
                    await agents.conversations.new(SessionKey(name, who))
                elif deed == "store":
                    memo = Memo(f"key{number}", f"{mark}: common words about everything.")
                    await memories.knowledge.store(SessionKey(name, who), memo)
                    own.add(mark)
                elif deed.endswith(".md"):
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / deed).write_text(f"{mark} is what is common.")
                    files.setdefault(key, {})[deed] = mark
                    own.add(mark)
                else:
                    own.add(mark)
                    await peers[who].say(
                        f"{mark}: what are the common words?", f"{name}@{kit.agent}"
                    )
                    await peers[who].hear("about it")
                    shown = seen[-1]
                    assert {mark, *files.get(key, {}).values()} <= shown
                    assert shown <= own, f"{shown - own} came to {key}"
                    own.update(MARK.findall((folder / "history.jsonl").read_text()))
