"""The requirements for an agent: the frozen set of one version of the specification, by
profiles.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any, Final, Literal, cast

Level = Literal["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"]


@dataclass(frozen=True)
class Requirement:
    """One normative sentence of the specification.

    Attributes:
        id: its identifier, such as ``EXE-012``, which is never given to another sentence.
        section: the anchor of its section.
        level: its capitalised keyword.
        check: what observes it: a check of this kit, or a test of the reference implementation.
        unobservable: why it cannot be observed from outside, if that is so.
        profile: the name of its profile.
        disputed: a link to the discussion of its interpretation, if there is one.
    """

    id: str
    section: str
    level: Level
    sentence: str
    check: str
    unobservable: str
    profile: str
    disputed: str

    @property
    def severity(self) -> Literal["must", "should", "may"]:
        """The severity of a violation: a failure, a warning, or information."""
        if self.level.startswith("MUST"):
            return "must"
        return "should" if self.level.startswith("SHOULD") else "may"


@dataclass(frozen=True)
class Profile:
    """A part of the specification that an agent claims by listing ``feature`` in disco#info."""

    name: str
    title: str
    feature: str


@dataclass(frozen=True)
class Specification:
    """One version of the specification: its requirements in their order, and its profiles."""

    name: str
    version: str
    link: str
    frozen: str
    requirements: tuple[Requirement, ...]
    profiles: tuple[Profile, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Requirement]:
        """The requirements by their identifiers."""
        return {one.id: one for one in self.requirements}

    def anchor(self, requirement: Requirement) -> str:
        """Return the URL of the sentence."""
        return f"{self.link}#{requirement.id}"


VERSIONS: Final = ("0",)
"""The versions of the specification that can be tested, the newest one last."""


def load(version: str = VERSIONS[-1]) -> Specification:
    """Read the requirements of one version of the specification, which are frozen: see
    `fingerprint`.

    Raises:
        ValueError: the version does not exist, or the data is inconsistent; the message names
            the requirement.
    """
    if version not in VERSIONS:
        raise ValueError(f"There is no version {version}; there are {', '.join(VERSIONS)}.")
    data = _toml("conformance", f"versions/{version}.toml")
    rows = _toml("protocol_schemas", "requirements.toml")["requirement"]
    by_id: dict[str, str] = {}
    by_section: dict[str, str] = {}
    for profile in data["profile"]:
        by_id |= dict.fromkeys(profile.get("ids", ()), profile["name"])
        by_section |= dict.fromkeys(profile["sections"], profile["name"])
    disputed = {row["id"]: row["link"] for row in data.get("disputed", ())}
    return Specification(
        name=data["specification"],
        version=data["version"],
        link=data["link"],
        frozen=data["fingerprint"],
        requirements=tuple([_requirement(row, by_id, by_section, disputed) for row in rows]),
        profiles=tuple([Profile(p["name"], p["title"], p["feature"]) for p in data["profile"]]),
    )


def fingerprint(specification: Specification) -> str:
    """Return a digest of all requirements of a version: the sentences, their levels and their
    profiles.

    Each file of versions/ contains the digest of its set, and a test compares the two: a set is
    changed on purpose, or not at all.
    """
    rows = [
        (one.id, one.section, one.level, one.sentence, one.profile)
        for one in specification.requirements
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _toml(package: str, name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(package).joinpath(name).read_text("utf-8"))


def _requirement(
    row: Mapping[str, str],
    by_id: Mapping[str, str],
    by_section: Mapping[str, str],
    disputed: Mapping[str, str],
) -> Requirement:
    profile = by_id.get(row["id"]) or by_section.get(row["section"])
    if profile is None:
        raise ValueError(f"{row['id']} is in no profile: add {row['section']} to versions/.")
    return Requirement(
        id=row["id"],
        section=row["section"],
        level=cast("Level", row["level"]),
        sentence=row["sentence"],
        check=row.get("check", ""),
        unobservable=row.get("unobservable", ""),
        profile=profile,
        disputed=disputed.get(row["id"], ""),
    )
