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
from component.skills.inputs import schema_inputs
from component.skills.skill import Invoke, Skill
from component.skills.spec import Annotations
from component.skills.validation import SchemaValidator
from xep.fluux_agent.skills import SkillDescription

_log = structlog.get_logger("component.features.peers")

_LONGEST_TITLE: Final = 100
_LONGEST_DESCRIPTION: Final = 4000
_LONGEST_IN_SCHEMA: Final = 1000
_MOST_TAGS: Final = 16
_READ_ONLY: Final = Annotations(read_only=True, destructive=False)


def skill_of(peer: Peer, said: SkillDescription, invoke: Invoke) -> Skill:
    """Return the skill of a description. Raises DeclarationError, ValueError, RecursionError."""
    schema = _schema(said, "input")
    if schema is None:
        raise DeclarationError("It has no schema of its parameters.")
    is_read_only = pattern(peer.read_only).fullmatch(said.name) is not None
    if is_read_only and said.annotations.destructive and not said.annotations.read_only:
        _log.warning(
            "a skill that the settings call read_only says that it changes something",
            peer=peer.name,
            skill=line(said.name, _LONGEST_TITLE),
        )
        is_read_only = False
    typical = said.typical
    cost = None if typical is None or typical.cost_usd is None else float(typical.cost_usd)
    title = said.titles[0].text if said.titles else ""
    description = said.descriptions[0].text if said.descriptions else ""
    return Skill(
        name=f"{peer.name}.{said.name}",
        title=line(title, _LONGEST_TITLE),
        description=clean(description, _LONGEST_DESCRIPTION),
        tags=("peer", *(line(tag, _LONGEST_TITLE) for tag in said.tags[:_MOST_TAGS])),
        annotations=_READ_ONLY if is_read_only else Annotations(),
        cost_usd=cost,
        timeout=peer.timeout_s,
        # The call is a row of its own, so whatever is between its steps may run again.
        durable=True,
        capabilities=(f"peer:{peer.name}",),
        taint="peer",
        described_by="peer",
        claims={"annotations": msgspec.to_builtins(said.annotations), "version": said.version},
        input_schema=schema,
        output_schema=_schema(said, "output"),
        source=f"the peer {peer.name} ({peer.jid})",
        versioned_by_content=True,
        inputs=schema_inputs(schema, adds_defaults=False),
        kind="async",
        wants_context=True,
        invoke=invoke,
    )


def _schema(said: SkillDescription, direction: str) -> dict[str, Any] | None:
    """Return a cleaned schema; None if there is none, or for one of the output that is not valid.

    Raises DeclarationError, ValueError, RecursionError for one of the input that is not.
    """
    given = next((each for each in said.schemas if each.direction == direction), None)
    if given is None:
        return None
    try:
        decoded = msgspec.json.decode(given.json, type=dict[str, Any])
        schema: dict[str, Any] = clean_schema(decoded, _LONGEST_IN_SCHEMA)
        SchemaValidator(schema)
    except (DeclarationError, ValueError, RecursionError):
        if direction == "input":
            raise
        return None
    return schema
