"""Makes skills of what a peer says about its own.

What a peer says is a claim. Its words are shown to people and models, bounded and without invisible
characters. Its annotations decide nothing: a skill counts as destructive and open to the world
unless the settings call it read-only (SKL-003).
"""

from typing import Any, Final

import msgspec
import structlog

from component.config.peers import Peer
from component.policy.globs import pattern
from component.skills.errors import DeclarationError
from component.skills.foreign_texts import clean, clean_schema, line
from component.skills.inputs import SchemaInputs, schema_inputs
from component.skills.skill import Invoke, Skill
from component.skills.spec import Annotations, Schema
from component.skills.validation import SchemaValidator
from xep.fluux_agent.skills import Schema as SaidSchema
from xep.fluux_agent.skills import SkillDescription

_log = structlog.get_logger("component.features.peers")

_LONGEST_TITLE: Final = 100
_LONGEST_DESCRIPTION: Final = 4000
_LONGEST_IN_SCHEMA: Final = 1000
_MOST_TAGS: Final = 16
_READ_ONLY: Final = Annotations(read_only=True, destructive=False)


def usable(peer: Peer, said: SkillDescription) -> SkillDescription:
    """Return the description of a skill with clean schemas that can be used; without that of the
    output if it cannot.

    Raises DeclarationError, ValueError, RecursionError: there is no skill of this description.
    """
    if pattern(peer.read_only).fullmatch(said.name) is not None and not _is_read_only(peer, said):
        _log.warning(
            "a skill that the settings call read_only says that it changes something",
            peer=peer.name,
            skill=line(said.name, _LONGEST_TITLE),
        )
    given = _cleaned(said, "input")
    if given is None:
        raise DeclarationError("It has no schema of its parameters.")
    schema_inputs(given, adds_defaults=False)
    schemas = [_said("input", given)]
    try:
        result = _cleaned(said, "output")
        if result is not None:
            SchemaValidator(result)
            schemas.append(_said("output", result))
    except (DeclarationError, ValueError, RecursionError):
        pass
    return msgspec.structs.replace(said, schemas=tuple(schemas))


def skill_of(peer: Peer, said: SkillDescription, invoke: Invoke) -> Skill:
    """Return the skill of a description that `usable` has returned. Raises DeclarationError: it has
    a name or a text that no skill can have.
    """
    typical = said.typical
    cost = None if typical is None or typical.cost_usd is None else float(typical.cost_usd)
    title = said.titles[0].text if said.titles else ""
    description = said.descriptions[0].text if said.descriptions else ""
    schemas = {one.direction: msgspec.json.decode(one.json, type=Schema) for one in said.schemas}
    return Skill(
        name=f"{peer.name}.{said.name}",
        title=line(title, _LONGEST_TITLE),
        description=clean(description, _LONGEST_DESCRIPTION),
        tags=("peer", *(line(tag, _LONGEST_TITLE) for tag in said.tags[:_MOST_TAGS])),
        annotations=_READ_ONLY if _is_read_only(peer, said) else Annotations(),
        cost_usd=cost,
        timeout=peer.timeout_s,
        # The call is a row of its own, so whatever is between its steps may run again.
        durable=True,
        capabilities=(f"peer:{peer.name}",),
        taint="peer",
        described_by="peer",
        claims={"annotations": msgspec.to_builtins(said.annotations), "version": said.version},
        input_schema=schemas["input"],
        output_schema=schemas.get("output"),
        source=f"the peer {peer.name} ({peer.jid})",
        versioned_by_content=True,
        inputs=SchemaInputs(schemas["input"], adds_defaults=False),
        kind="async",
        wants_context=True,
        invoke=invoke,
    )


def _is_read_only(peer: Peer, said: SkillDescription) -> bool:
    """Return whether the settings call a skill read-only, and the peer does not contradict."""
    if pattern(peer.read_only).fullmatch(said.name) is None:
        return False
    return said.annotations.read_only or not said.annotations.destructive


def _cleaned(said: SkillDescription, direction: str) -> dict[str, Any] | None:
    """Return a schema with clean texts, or None. Raises ValueError, RecursionError."""
    given = next((each for each in said.schemas if each.direction == direction), None)
    if given is None:
        return None
    decoded = msgspec.json.decode(given.json, type=dict[str, Any])
    cleaned: dict[str, Any] = clean_schema(decoded, _LONGEST_IN_SCHEMA)
    return cleaned


def _said(direction: Any, schema: Schema) -> SaidSchema:
    return SaidSchema(direction=direction, json=msgspec.Raw(msgspec.json.encode(schema)))
