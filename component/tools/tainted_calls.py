"""Which arguments of a call strangers may have chosen whose texts the model has read."""

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from component.agent.protocol import Caller
from component.policy.flows import TRUSTED
from component.policy.provenance import (
    SourceTexts,
    chosen_by_model,
    may_be_planted,
    reserved,
    texts_in,
)
from component.skills import Skill, View

_NETWORK: Final = "network:"


def with_descriptions(
    caller: Caller, skill: Skill, arguments: msgspec.Raw, described: Collection[Skill], view: View
) -> Caller:
    """Return the caller of a call, with the taints of descriptions of tools if their authors may
    have chosen where the call goes.

    A model reads the descriptions of all tools that it is offered, and most of its calls have
    nothing to do with them. So their taints count only for a call that has a link, an address or a
    secret of unknown origin (`may_be_planted`). What a source says about its tools does not count
    for calls of these.

    Args:
        caller: the caller.
        skill: what is called.
        arguments: JSON.
        described: the skills that the model was offered, and that the operator has not described.
        view: all skills that the model is offered.
    """
    others = [one for one in described if one.source != skill.source]
    taints = {one.described_by for one in others if one.described_by is not None}
    values = msgspec.json.decode(arguments) if not taints <= caller.taints else None
    if not isinstance(values, dict):
        return caller
    texts = [
        text for one in others for text in (one.name, one.description, *texts_in(one.input_schema))
    ]
    # Those of catalogues are described by others.
    names = [one.name for one in view.made() if one.described_by is None]
    written = SourceTexts((*caller.written, *names))
    if not may_be_planted(values, skill.input_schema, texts, written):
        return caller
    said = caller.said or caller.written
    return msgspec.structs.replace(caller, taints=caller.taints | taints, said=said)


def chosen_and_reserved(
    caller: Caller, skill: Skill, arguments: msgspec.Raw, find: Callable[[str], Skill | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the arguments, a JSON object, that the authors of untrusted texts may
    have chosen, and of those with a value that must be the person's own, and is not.

    `find` returns the skill for the name of a tool.
    """
    if caller.taints <= TRUSTED:
        return (), ()
    notes = skill.annotations
    values: dict[str, Any] = msgspec.json.decode(arguments)
    said = SourceTexts(caller.said)
    links = notes.open_world and not notes.read_only
    own = reserved(values, skill.input_schema, [said], links=links)
    texts = [said]
    if notes.read_only:
        hosts = _hosts(skill)
        texts.append(
            SourceTexts(text for name, text in caller.results if _knows(find(name), hosts))
        )
    found = chosen_by_model(values, skill.input_schema, texts, few_are_free=notes.read_only)
    return tuple(found), tuple(own)


def _hosts(skill: Skill) -> frozenset[str]:
    """Return the hosts that a skill reaches; none if it may reach any host."""
    found = frozenset(one for one in skill.capabilities if one.partition(":")[0] == "network")
    return found if all(one.startswith(_NETWORK) for one in found) else frozenset()


def _knows(source: Skill | None, hosts: frozenset[str]) -> bool:
    """Return whether a result of `source` came from the hosts, so that they know it already."""
    return source is not None and bool(hosts) and hosts == _hosts(source)
