"""What the target says of itself: asked once, before the checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.skills_map import Skill
from xep.fluux_agent import NAMESPACE as AGENT


@dataclass
class Target:
    """The entity that is judged.

    Attributes:
        address: where requests go.
        features: what disco#info lists.
        fields: the values of the form `urn:fluux:agent:0`, by their names.
        skills: what plays each role.
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
        """Whether it lists a part of the protocol, such as ``task``."""
        return f"{AGENT}#{part}" in self.features

    def number(self, name: str, otherwise: int) -> int:
        """A number in the form; ``otherwise`` if it is not there or none."""
        value = "".join(self.fields.get(name, ())[:1]).strip()
        return int(value) if value.isascii() and value.isdigit() else otherwise

    def about(self) -> dict[str, str]:
        """The form for the head of a report."""
        return {name: ", ".join(values) for name, values in sorted(self.fields.items())}
