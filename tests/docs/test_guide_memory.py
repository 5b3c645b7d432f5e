"""The guide to the memory: its line is read, its configuration too, and everything lies there."""

import re
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from component.app.features import load
from component.config.memory import MemoryScope
from component.memory.index_database import FILE_NAME as INDEX
from component.memory.knowledge_lines import FILE_NAME, MemoryLine, decode_memory, encode_memory
from component.memory.sharing import Sharing
from component.memory_directory.layout import Layout, SessionKey
from component.personas.packages import LONGEST_TEXT, imported
from tests.servers.guides import DOCS
from xep.jid import JID

TEXT = "\n".join(
    page.read_text("utf-8")
    for page in (
        DOCS / "reference" / "memory.md",
        DOCS / "how-to" / "memory-nodes.md",
        DOCS / "how-to" / "personas.md",
    )
)
ALICE = JID.parse("alice@example.com")


def shown(language: str) -> list[str]:
    """The blocks of the guide in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def drawn() -> set[str]:
    """The paths in the picture of the layout."""
    (picture,) = (text for text in shown("") if text.startswith("data/memory/"))
    found: set[str] = set()
    above: dict[int, str] = {}
    for line in picture.splitlines()[1:]:
        at = line.index("── ") + 3
        for name in line[at:].split("  ")[0].split():
            parents = [above[depth] for depth in sorted(above) if depth < at]
            above = {depth: each for depth, each in above.items() if depth < at}
            above[at] = name.rstrip("/")
            found.add("/".join([*parents, name.rstrip("/")]))
    return found


def test_the_line_is_one_of_ours() -> None:
    (text,) = shown("json")
    entry = decode_memory(text.encode())
    assert entry is not None
    assert encode_memory(entry).decode() == text
    table = TEXT[TEXT.index("| `key` | the name by which") :].partition("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines())))
    assert told == set(MemoryLine.__struct_encode_fields__)


def test_everything_lies_where_it_is_drawn() -> None:
    root = Path("root")
    layout = Layout(root)
    sharing = Sharing(layout, [MemoryScope(name="kitchen", members=("*",))])
    folders = [
        layout.folder(SessionKey(agent, ALICE))
        for agent in ("assistant", "assistant/helper-3f9a21bc", "researcher")
    ]
    files = [
        place.folder / FILE_NAME
        for agent in ("assistant", "researcher")
        for place in sharing.visible(SessionKey(agent, ALICE))
        if place.scope != "private"
    ]
    paths = {path.relative_to(root).as_posix() for path in (*folders, *files)}
    assert paths | {INDEX} <= drawn()


def test_a_persona_that_is_handed_on_is_taken_in() -> None:
    (text,) = (text for text in shown("toml") if "[persona.texts]" in text)
    assert imported(text).id == "study-buddy"
    assert f"{LONGEST_TEXT:,} characters" in TEXT


@pytest.mark.parametrize("text", [text for text in shown("toml") if "[persona]" not in text])
def test_every_toml_example_of_the_memory_guide_is_loaded(text: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    server = '[server]\ncomponent_domain = "agent.example.com"\ncomponent_secret = "x"\n'
    path.write_text(server + text)
    secrets = {"MEMORY_KEY": Fernet.generate_key().decode()}
    assert load(path, secrets).notice is None
