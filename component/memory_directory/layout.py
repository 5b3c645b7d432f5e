"""Where on disk everything lies: whose directory is which, and names that cannot lead astray.

The default agent has the root itself, as in Fluux Agent: `{root}/{jid}/history.jsonl`. Any other
agent has `{root}/_agents/{name}`, a sub-agent `_sub/{id}` in the directory of its parent. No domain
begins with `_`, so neither is ever taken for an address.
"""

import functools
import hashlib
import re
import unicodedata
from pathlib import Path

import msgspec

from component.settings.model import DEFAULT_AGENT
from xep.jid import JID

AGENTS = "_agents"
"""Where in the root the directories of the other agents are."""
SUB_AGENTS = "_sub"
"""Where in the directory of an agent those below it are."""

KNOWLEDGE = "knowledge"
"""Where in the directory of an agent its documents are."""

_LONGEST = 255  # bytes in a file name, on the file systems in use (NAME_MAX)
_DIGEST = 65  # bytes of `&` and a SHA-256 in hex
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._%+=~-]*@[a-z0-9][a-z0-9.-]*")

# What stands beside the directories of addresses and could be the name of a domain.
_TAKEN = frozenset(
    {
        "context.md",
        "identity.md",
        "instructions.md",
        "knowledge",
        "memory.md",
        "personality.md",
        "personas",
        "readme.md",
        "user.md",
    }
)


class SessionKey(msgspec.Struct, frozen=True):
    """An agent, and a person or a room: the key of a conversation and of private memories.

    `agent` is the localpart of an agent, or of a sub-agent `parent/id`; `who` a bare JID.
    """

    agent: str
    who: JID


class Layout:
    """The directories below one root. Reads and writes nothing.

    `component.memory_directory.files.open_root` makes a root.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Making a path takes longer than asking the disk about it.
        self._folder = functools.lru_cache(maxsize=1024)(self._make_folder)
        self.personas = root / "personas"
        """Where the persona packages are, those of all agents."""

    def home(self, agent: str) -> Path:
        """The directory of an agent, or of a sub-agent `parent/id`."""
        name, *below = agent.split("/")
        home = self.root
        if name != DEFAULT_AGENT:
            home = home / AGENTS / file_name(name)
        for each in below:
            home = home / SUB_AGENTS / file_name(each)
        return home

    def homes(self, agent: str) -> tuple[Path, ...]:
        """Where files for all conversations of an agent are looked for: its own directory first,
        then those of the agents above it, the root last.
        """
        names = agent.split("/")
        found = [self.home("/".join(names[:end])) for end in range(len(names), 0, -1)]
        return tuple(dict.fromkeys([*found, self.root]))

    def folder(self, key: SessionKey) -> Path:
        """The directory of one conversation. Nothing of another one is ever in there."""
        return self._folder(key)

    def own_personas(self, key: SessionKey) -> Path:
        """Where the persona packages are that somebody has made for themselves, for one agent."""
        return self.folder(key) / "personas"

    def _make_folder(self, key: SessionKey) -> Path:
        return self.home(key.agent) / file_name(str(key.who.bare))


@functools.lru_cache(maxsize=1024)
def file_name(name: str) -> str:
    """The file name for an address or an agent: the name itself wherever that can be.

    Different names give different file names, also where the file system does not tell capitals
    from small letters or normalises Unicode (APFS, HFS+). What would not be kept apart, cannot be
    seen, or is no part of a file name is written `&`, the code point in hex, `;`: no address holds
    an `&` (RFC 7622 §3.3.1). A name too long for a file ends in `&` and a digest of the whole.
    """
    if _PLAIN.fullmatch(name) and len(name) <= _LONGEST:
        return name
    text = "".join(c if _stays(c) else _escaped(c) for c in name)
    if _folded(text) != text:
        text = "".join(c if c.isascii() else _escaped(c) for c in text)
    if not name:
        text = "&;"
    elif "@" not in name and (name[0] in "._" or text in _TAKEN):
        text = _escaped(name[0]) + text[1:]
    data = text.encode()
    if len(data) <= _LONGEST:
        return text
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{data[: _LONGEST - _DIGEST].decode(errors='ignore')}&{digest}"


def _stays(character: str) -> bool:
    return character not in "/& " and character.isprintable() and _folded(character) == character


def _escaped(character: str) -> str:
    return f"&{ord(character):x};"


def _folded(text: str) -> str:
    # Canonical caseless matching (The Unicode Standard, D145), composed again.
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", decomposed.casefold())
