"""What a proposal may contain, checked before anything of it runs.

A proposal has three texts and no names of files, so none can lead out of its directory. It may
declare only capabilities that tests can replace: it is tested before anybody has approved it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from component.skill_directories.cases import Case, parse_cases
from component.skills.capabilities import Capabilities
from component.skills.errors import SkillLoadError, printable
from component.skills.manifest import Manifest, ManifestError, read_manifest

ENTRY: Final = "main.py"
MOST_CASES: Final = 20
LONGEST_LINE: Final = 300
LONGEST_NAME: Final = 64
MOST_MEMORY: Final = 256 << 20
MOST_OUTPUT: Final = 1 << 20
_KINDS: Final = ("python", "rest")
_TESTABLE: Final = frozenset(("network", "credential", "llm", "memory_read", "memory_write"))
"""The capabilities that a proposal may declare; `clock` and `random` need no test."""
_HARMLESS: Final = frozenset(("clock", "random"))
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")


class DraftError(Exception):
    """A proposal is refused. The message says what is wrong, for who wrote it."""


class UnreadableDraftError(DraftError):
    """Its manifest or its tests are not what such a file is."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a proposal, as a model or a caller writes them."""

    manifest: Annotated[str, Meta(description="skill.toml, in TOML")]
    code: Annotated[str, Meta(description="main.py; empty for the kind rest")] = ""
    tests: Annotated[str, Meta(description="tests/cases.toml, in TOML")]

    def files(self) -> dict[str, str]:
        """Return the files of the skill."""
        found = {"skill.toml": self.manifest, "tests/cases.toml": self.tests}
        return found | ({ENTRY: self.code} if self.code else {})


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A draft that may be tried out."""

    draft: Draft
    manifest: Manifest
    cases: Sequence[Case]

    @property
    def name(self) -> str:
        """The name of the skill."""
        return self.manifest.skill.name


def check(draft: Draft, most_bytes: int) -> Checked:
    """Check a draft. Blocks for a moment. Raises DraftError."""
    for what, text in draft.files().items():
        _check_text(what, text, most_bytes)
    try:
        manifest = read_manifest(draft.manifest)
        cases = parse_cases(draft.tests.encode())
    except (ManifestError, SkillLoadError) as error:
        raise UnreadableDraftError(str(error)) from None
    _check_manifest(manifest, draft)
    _check_cases(cases)
    return Checked(draft=draft, manifest=manifest, cases=cases)


def _check_text(what: str, text: str, most_bytes: int) -> None:
    """Refuse texts that an admin cannot read as they are executed."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise DraftError(f"{what} has half of a surrogate pair.") from None
    if size > most_bytes:
        raise DraftError(f"{what} has {size:,} bytes, more than the permitted {most_bytes:,}.")
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise DraftError(
                f"{what}, line {number}: more than {LONGEST_LINE} characters: wrap it."
            )
        for char in line:
            # Control and format characters hide text, or change its order on a screen.
            if char != "\t" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cn"):
                name = unicodedata.name(char, "a control character")
                raise DraftError(f"{what}, line {number} has {name}: write an escape instead.")


def _check_manifest(manifest: Manifest, draft: Draft) -> None:
    said, runs = manifest.skill, manifest.skill.execution
    if len(said.name) > LONGEST_NAME or not _NAME.fullmatch(said.name):
        raise DraftError(f"The name {printable(said.name, LONGEST_NAME)!r} cannot be used.")
    if runs.kind not in _KINDS:
        raise DraftError(f"A proposal is of the kind {' or '.join(_KINDS)}, not {runs.kind}.")
    if runs.kind == "python" and (runs.entry != ENTRY or not draft.code.strip()):
        raise DraftError(f'The code of a proposal is {ENTRY}: write entry = "{ENTRY}", and code.')
    if runs.kind == "rest" and draft.code:
        raise DraftError("A skill of the kind rest has no code: leave it out.")
    if manifest.schema_files:
        raise DraftError("Write the schemas into the manifest: a proposal has no other files.")
    if runs.memory_bytes > MOST_MEMORY or runs.output_bytes > MOST_OUTPUT:
        raise DraftError(
            f"A proposal uses up to {MOST_MEMORY:,} bytes of memory and returns up to"
            f" {MOST_OUTPUT:,}: remove memory_bytes and output_bytes."
        )
    if runs.durable:
        raise DraftError("A confined skill cannot be durable: remove durable.")
    if said.schedule is not None and said.schedule.principal:
        raise DraftError("The settings say for whom a schedule runs: remove its principal.")
    if not said.description:
        raise DraftError("The manifest lacks a description.")
    for name in Capabilities.__struct_fields__:
        if getattr(said.capabilities, name) and name not in _TESTABLE | _HARMLESS:
            raise DraftError(
                f"A proposal cannot declare {name}: a skill with it is installed by an admin."
            )


def _check_cases(cases: Sequence[Case]) -> None:
    """Refuse tests that show nothing."""
    if not 1 <= len(cases) <= MOST_CASES:
        raise DraftError(f"A proposal has 1 to {MOST_CASES} tests, not {len(cases)}.")
    succeeding = 0
    for case in cases:
        named = [case.text, case.contains, case.error]
        if "" in named[1:] or (not any(named) and case.json is msgspec.UNSET):
            raise DraftError(
                f"The test {printable(case.name, 100)!r} compares nothing: add text, contains, json"
                " or error."
            )
        succeeding += case.error is None
    if not succeeding:
        raise DraftError("No test shows a result: add one that expects no error.")
