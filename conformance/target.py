"""The target's information about itself, queried once, before the checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.skills_map import Skill
from xep.fluux_agent import NAMESPACE as AGENT


@dataclass
class Target:
    """The tested entity.

    Attributes:
        address: the address for requests.
        features: the features in disco#info.
        fields: the values of the form `urn:fluux:agent:0`, by their names.
        skills: the skill for each role.
        offered: the names of the skills in the caller's view.
    """

    address: str
    skills: Mapping[str, Skill]
    features: frozenset[str] = frozenset()
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offered: frozenset[str] = frozenset()

    @property
    def domain(self) -> str:
        """The domain of its address."""
        return self.address.partition("/")[0].rpartition("@")[2]

    @property
    def is_component(self) -> bool:
        """Whether the address is a domain, which may host agents."""
        return "@" not in self.address

    def serves(self, part: str) -> bool:
        """Return whether it announces a part of the protocol, such as ``task``."""
        return f"{AGENT}#{part}" in self.features

    def number(self, name: str, otherwise: int) -> int:
        """Return a number in the form; ``otherwise`` if it is missing or invalid."""
        value = "".join(self.fields.get(name, ())[:1]).strip()
        return int(value) if value.isascii() and value.isdigit() else otherwise

    def about(self) -> dict[str, str]:
        """Return the form for the head of a report."""
        return {name: ", ".join(values) for name, values in sorted(self.fields.items())}
