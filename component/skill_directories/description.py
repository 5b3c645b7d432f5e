"""Makes the description of a skill that is to be approved, and checks it."""

from __future__ import annotations

from typing import Any

import msgspec

from component import system
from component.policy.flows import covers
from component.skill_directories.runners import Artefact, Runner
from component.skills.description import written
from component.skills.errors import DeclarationError, SkillLoadError
from component.skills.manifest import FILE
from component.skills.schema_inputs import schema_inputs
from component.skills.spec import Schema
from component.skills.validation import MOST_BYTES, SchemaValidator


async def describe(artefact: Artefact, runner: Runner) -> str:
    """Return the description of a skill, as JSON.

    Raises SkillLoadError, ManifestError: it cannot be loaded, or its manifest and its code do not
    fit.
    """
    said = dict(await runner.describe(artefact))
    schemas = await system.in_thread(_schemas, artefact)
    declared = artefact.manifest.skill.capabilities.texts
    missing = covers(declared, said.get("capabilities", ()))
    if missing is not None:
        raise SkillLoadError(f"its code uses the capability {missing}, which {FILE} lacks: add it.")
    fields: dict[str, Any] = {**said, **schemas}
    if "input_schema" not in fields:
        raise SkillLoadError(f"{FILE} lacks input_schema, and its code does not say it: add it.")
    try:
        schema_inputs(fields["input_schema"])
        if fields.get("output_schema") is not None:
            SchemaValidator(fields["output_schema"])
    except DeclarationError as error:
        raise SkillLoadError(str(error)) from error
    spec = artefact.manifest.spec(fields, artefact.name)
    return written(spec)


def schema_of(artefact: Artefact, said: Schema | str) -> Schema:
    """Return a schema of a manifest, which may be the name of a file. Blocks.

    Raises SkillLoadError.
    """
    if not isinstance(said, str):
        return said
    try:
        text = (artefact.directory / said).read_bytes()
        if len(text) > MOST_BYTES:
            raise SkillLoadError(f"{said} has more than {MOST_BYTES} bytes.")
        return msgspec.json.decode(text, type=dict[str, Any])
    except (OSError, ValueError, RecursionError) as error:
        raise SkillLoadError(f"{said} is not a JSON Schema: {error}") from error


def _schemas(artefact: Artefact) -> dict[str, Schema]:
    """Return the schemas that the manifest has or names."""
    said = artefact.manifest.skill
    named = {"input_schema": said.input_schema, "output_schema": said.output_schema}
    return {name: schema_of(artefact, one) for name, one in named.items() if one is not None}
