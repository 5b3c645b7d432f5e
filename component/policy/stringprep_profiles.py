"""How servers prepare addresses: nodeprep (RFC 3920 Appendix A) and nameprep (RFC 3491).

Imported where the settings name accounts, or domains beyond ASCII.
"""

import contextlib
import stringprep
import unicodedata
from encodings.idna import nameprep

# RFC 3454 is bound to Unicode 3.2; the standard library keeps its tables for this.
_unicode = unicodedata.ucd_3_2_0

_PROHIBITED = (
    stringprep.in_table_c11_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    frozenset("\"&'/:<>@").__contains__,
)


def served_domain(domain: str) -> str | None:
    """Return a domain as a server with IDNA2003 reads it, or None if it refuses the domain."""
    if not any(map(stringprep.in_table_a1, domain)):
        with contextlib.suppress(UnicodeError):
            return ".".join(map(nameprep, domain.split(".")))
    return None


def nodeprep(text: str) -> str | None:
    """Return the localpart as a server passes it on, or None if a server refuses it.

    Characters newer than Unicode 3.2 count as refused (RFC 3454 §7, stored strings): some servers
    pass them on unmapped, others do not.
    """
    mapped = "".join(stringprep.map_table_b2(c) for c in text if not stringprep.in_table_b1(c))
    prepared = _unicode.normalize("NFKC", mapped)
    if any(stringprep.in_table_a1(character) for character in text + prepared):
        return None
    if any(prohibits(character) for prohibits in _PROHIBITED for character in prepared):
        return None
    return prepared if _direction_holds(prepared) else None


def _direction_holds(text: str) -> bool:
    """Check RFC 3454 §6: right-to-left text begins and ends so, without other letters."""
    if not any(map(stringprep.in_table_d1, text)):
        return True
    return (
        not any(map(stringprep.in_table_d2, text))
        and stringprep.in_table_d1(text[0])
        and stringprep.in_table_d1(text[-1])
    )
