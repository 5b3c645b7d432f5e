"""urn:fluux:agent:0, the agent protocol: discovery, execution and confirmation of skills.

One module per namespace. The stanzas of the first public draft are accepted as printed.
"""

from typing import Final

NAMESPACE: Final = "urn:fluux:agent:0"
"""The feature in ``disco#info`` of entities that support the protocol."""
