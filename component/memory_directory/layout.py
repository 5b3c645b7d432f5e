"""The layout of the directory: which directory belongs to whom, and safe file names.

The default agent has the root itself, as in Fluux Agent: `{root}/{jid}/history.jsonl`. Any other
agent has `{root}/_agents/{name}`, a sub-agent `_sub/{id}` in the directory of its parent. No domain
begins with `_`, so these names are never addresses.
"""

import functools
import hashlib
import re
import unicodedata
from pathlib import Path

import msgspec

from component import DEFAULT_AGENT
from component.audit.protocol import AuditEvent
from xep.jid import JID

AGENTS = "_agents"
"""The directory of the other agents, in the root."""
SUB_AGENTS = "_sub"
"""The directory of its sub-agents, in the directory of an agent."""

APPROVED = "_approved"
"""The directory of what admins have approved, in the root. The service writes it."""

KNOWLEDGE = "knowledge"
"""The directory of its documents, in the directory of an agent."""

DRAFT = "persona_draft.json"
"""The file with a persona that a person has not confirmed yet, in the directory of that person."""

_LONGEST = 255  # bytes in a file name, on the file systems in use (NAME_MAX)
_DIGEST = 65  # bytes of `&` and a SHA-256 in hex
_PLAIN = r"[a-z0-9][a-z0-9._%+=~-]*@[a-z0-9][a-z0-9.-]*"

# Names beside the directories of addresses that could be domains.
_RESERVED = frozenset(
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

    `agent` is the localpart of an agent, or of a sub-agent `parent/id`; `who` a bare JID, or the
    full one of an occupant of a room, whose resource identifies the occupant.
    """

    agent: str
    who: JID


def memory_event(
    whose: SessionKey, outcome: str, subject: str, detail: str, trace: str = ""
) -> AuditEvent:
    """Return the event of an access to what is stored about a person."""
    return AuditEvent(
        kind="memory",
        outcome=outcome,
        principal=str(whose.who),
        agent=whose.agent,
        trace=trace,
        subject=subject,
        detail=detail,
    )


class Layout:
    """The paths below one root, without I/O; `files.open_root` creates a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # To make a path takes longer than to call `stat` for it.
        self._folder = functools.lru_cache(maxsize=1024)(self._make_folder)
        self.personas = root / "personas"
        """The persona packages for all agents."""
        self.approved_personas = root / APPROVED / "personas"
        """Those of them that somebody has proposed and an admin has approved."""

    def agent_directory(self, agent: str) -> Path:
        """The directory of an agent, or of a sub-agent `parent/id`."""
        name, *below = agent.split("/")
        directory = self.root
        if name != DEFAULT_AGENT:
            directory = directory / AGENTS / file_name(name)
        for each in below:
            directory = directory / SUB_AGENTS / file_name(each)
        return directory

    def agent_directories(self, agent: str) -> tuple[Path, ...]:
        """The directories with files for all conversations of an agent, in the order of their
        precedence: its own, those of its parents, and the root.
        """
        names = agent.split("/")
        found = [self.agent_directory("/".join(names[:end])) for end in range(len(names), 0, -1)]
        return tuple(dict.fromkeys([*found, self.root]))

    def folder(self, key: SessionKey) -> Path:
        """The directory of one conversation, with nothing of any other one."""
        return self._folder(key)

    def own_personas(self, key: SessionKey) -> Path:
        """The persona packages that a person has created for themselves, with one agent."""
        return self.folder(key) / "personas"

    def _make_folder(self, key: SessionKey) -> Path:
        return self.agent_directory(key.agent) / file_name(str(key.who))


@functools.lru_cache(maxsize=1024)
def file_name(name: str) -> str:
    """Return the file name for an address or an agent: the name itself if possible.

    Different names have different file names, also on file systems that ignore case or normalise
    Unicode (APFS, HFS+). Characters that such a file system confuses, that are invisible, or that
    cannot be in a file name are written as `&`, the code point in hex, and `;`; no address contains
    `&` (RFC 7622 §3.3.1). A name that is too long ends in `&` and a digest of the whole.
    """
    if re.fullmatch(_PLAIN, name) and len(name) <= _LONGEST:
        return name
    text = "".join(c if _stays(c) else _escaped(c) for c in name)
    if _folded(text) != text:
        text = "".join(c if c.isascii() else _escaped(c) for c in text)
    if not name:
        text = "&;"
    elif "@" not in name and (name[0] in "._" or text in _RESERVED):
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
