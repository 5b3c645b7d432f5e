"""What a peer offers: its descriptions, and the skills that are made of them when they are used."""

import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec
import structlog

from component.config.peers import Peer
from component.features.peers.calls import PeerCalls
from component.features.peers.remote import skill_of, usable
from component.features.peers.rows import OfferedSkills
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.errors import DeclarationError, printable
from component.skills.inputs import Arguments
from component.skills.registry import BETWEEN, DIGEST_BYTES, Catalogue, ListedSkill
from component.skills.skill import Invoke, Skill
from xep.binding import encode, read
from xep.fluux_agent.skills import SkillDescription

_log = structlog.get_logger("component.features.peers")

_LONGEST_NAME: Final = 100
_KEPT: Final = 8
"""The number of lists of texts that are kept unpacked: a page of a list has skills of few peers."""


class Described(msgspec.Struct, frozen=True):
    """A usable description: the XML, and what is kept of it. `name` is that of the skill here."""

    name: str
    title: str
    searched: str
    digest: bytes
    text: str


def described(peer: Peer, said: SkillDescription) -> Described | None:
    """Return what is kept of a skill of a peer; None, with an entry in the log, if it cannot be
    used.
    """
    try:
        checked = usable(peer, said)
        skill = skill_of(peer, checked, _not_called)
    except (DeclarationError, ValueError, RecursionError) as error:
        _log_unusable(peer, said.name, error)
        return None
    text = encode(checked)
    digest = sha256(f"{peer.name}\n{text}".encode()).digest()[:DIGEST_BYTES]
    return Described(skill.name, skill.title, skill.searched, digest, text)


def packed(found: Mapping[str, Described]) -> OfferedSkills:
    """Return descriptions, by their names, as they are stored."""
    ordered = [found[name] for name in sorted(found)]
    return OfferedSkills(
        names=tuple([one.name for one in ordered]),
        searched=BETWEEN.join([one.searched for one in ordered]),
        digests=b"".join([one.digest for one in ordered]),
        titles=_compressed([one.title for one in ordered]),
        texts=_compressed([one.text for one in ordered]),
    )


def _compressed(texts: Sequence[str]) -> bytes:
    return zlib.compress(msgspec.json.encode(texts))


@lru_cache(_KEPT)
def _unpacked(texts: bytes) -> list[str]:
    return msgspec.json.decode(zlib.decompress(texts), type=list[str])


class PeerCatalogue(Catalogue):
    """The skills of a peer.

    Attributes:
        calls: makes the calls of all skills, those that were made before it was set too.
    """

    def __init__(self, peer: Peer, skills: OfferedSkills, calls: PeerCalls) -> None:
        self.source = f"the peer {peer.name} ({peer.jid})"
        self.calls = calls
        self._peer = peer
        self._skills = skills
        self.searched = skills.searched
        self.digests = _digests(peer, skills)

    def listed(self) -> list[ListedSkill]:
        """Return the skills that the settings name."""
        known, begin = self._skills, len(self._peer.name) + 1
        wanted = pattern(self._peer.skills).fullmatch
        return [
            ListedSkill(name, number, self)
            for number, name in enumerate(known.names)
            if wanted(name, begin)
        ]

    def make(self, name: str, number: int) -> Skill | None:
        """Return a skill; None, with an entry in the log, if it cannot be made: an older release
        has stored it.
        """
        try:
            said = read(_unpacked(self._skills.texts)[number], SkillDescription)
            return skill_of(self._peer, said, self._invoke_of(said.name))
        except (DeclarationError, ValueError, LookupError, RecursionError) as error:
            _log_unusable(self._peer, name, error)
            return None

    def title(self, number: int) -> str:
        """Return the title of the skill with this number."""
        return _unpacked(self._skills.titles)[number]

    def _invoke_of(self, skill: str) -> Invoke:
        def invoke(arguments: Arguments, context: Context | None) -> Any:
            return self.calls.invoke_of(self._peer, skill)(arguments, context)

        return invoke


def _digests(peer: Peer, skills: OfferedSkills) -> bytes:
    """Return the digests of skills, which are others for those that the settings call read-only."""
    if not peer.read_only:
        return skills.digests
    found, begin = bytearray(skills.digests), len(peer.name) + 1
    is_read_only = pattern(peer.read_only).fullmatch
    for number, name in enumerate(skills.names):
        if is_read_only(name, begin):
            found[number * DIGEST_BYTES] ^= 1
    return bytes(found)


def _not_called(_arguments: Arguments, _context: Context | None) -> None:
    """Stand for the function of a skill that is made only to be described."""


def _log_unusable(peer: Peer, skill: str, error: Exception) -> None:
    _log.warning(
        "a skill of a peer cannot be offered",
        peer=peer.name,
        skill=printable(skill, _LONGEST_NAME),
        reason=str(error),
    )
