"""What is asked of an agent: the frozen set of one version of the specification, by profiles."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any, Literal, cast

Level = Literal["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"]


@dataclass(frozen=True)
class Requirement:
    """One normative sentence of the specification.

    Attributes:
        id: its identifier, such as ``EXE-012``, which is never given to another sentence.
        section: the anchor of the section it stands in.
        level: the one capitalised word in it.
        check: what observes it: a check of this kit, or a test of the reference implementation.
        unobservable: why nothing from outside can observe it, if that is so.
        profile: the name of the profile it belongs to.
        disputed: a link to the argument about how it is to be read, if there is one.
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
        """What breaking it is: a failure, a warning, or information."""
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
    requirements: tuple[Requirement, ...]
    profiles: tuple[Profile, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Requirement]:
        """The requirements by their identifiers."""
        return {one.id: one for one in self.requirements}

    def anchor(self, requirement: Requirement) -> str:
        """Where the sentence can be read."""
        return f"{self.link}#{requirement.id}"


def load() -> Specification:
    """Read the set that this release of the kit judges by.

    Raises:
        ValueError: the data do not fit each other; the message names the requirement.
    """
    data = _toml("conformance", "profiles.toml")
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
        requirements=tuple([_requirement(row, by_id, by_section, disputed) for row in rows]),
        profiles=tuple([Profile(p["name"], p["title"], p["feature"]) for p in data["profile"]]),
    )


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
        raise ValueError(f"{row['id']} is in no profile: add {row['section']} to profiles.toml.")
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
