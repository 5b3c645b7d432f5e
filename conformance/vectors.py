"""The vectors of protocol_schemas, for agents and times of this run.

A vector has fixed addresses, times and keys. `Cast` puts those of this run in their place, and
signs each grant again, with the same defect.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from conformance.signing import Key, decode, digest, encode, is_signed, key_of, part
from xep.binding.escaping import escape_text
from xep.fluux_agent.delegation import NAMESPACE as DELEGATION
from xep.fluux_agent.grant import NAMESPACE as GRANT

_SIGNERS: Final = (
    "assistant@agent.example.com",
    "research@agent.example.net",
    "library@agent.example.org",
    "another key of B",
)
"""Whose keys sign the grants of the vectors."""
_MARGIN_S: Final = 5
"""Seconds by which what is sent may arrive later than it was made, at the edge of a tolerance."""


def read_all(folder: str = "") -> list[dict[str, Any]]:
    """Return the vectors of grants, or those in ``folder``."""
    return list(_read(folder))


@cache
def _read(folder: str) -> tuple[dict[str, Any], ...]:
    found = files("protocol_schemas").joinpath("vectors", *([folder] if folder else []))
    names = sorted(one.name for one in found.iterdir() if one.name.endswith(".json"))
    return tuple(json.loads(found.joinpath(name).read_text("utf-8")) for name in names)


@dataclass(frozen=True)
class Cast:
    """Who plays whom.

    Attributes:
        addresses: the addresses of this run, by those of the vectors; all others are at `users`.
        users: the domain of the kit's agents.
        skills: names of skills of the target, and patterns, by those of the vectors.
        now: the time in seconds since 1970.
    """

    addresses: Mapping[str, str]
    users: str
    skills: Mapping[str, str]
    now: int

    def chain(self, vector: Mapping[str, Any], **members: Any) -> list[str]:
        """Return the grants of a vector, signed again. ``members`` are added to the last one."""
        signed: list[str] = []
        before = ""
        last = vector["grants"][-1]
        for compact in vector["grants"]:
            claims = self._claims(vector, part(compact, 1))
            claims |= members if compact is last else {}
            if before and claims.get("par") == digest(before):
                claims["par"] = digest(signed[-1])
            signed.append(self._signed(compact, claims))
            before = compact
        return signed

    def delegation(self, vector: Mapping[str, Any], **members: Any) -> str:
        """Return the <delegation/> of a vector; ``members`` as in `chain`."""
        given = vector["delegation"]
        heads = "".join(
            f" {name}={quoteattr(self._address(value) if name == 'origin' else str(value))}"
            for name, value in given.items()
            if name != "via"
        )
        inside = "".join(f"<via>{escape_text(self._address(one))}</via>" for one in given["via"])
        grants = self.chain(vector, **members)
        inside += "".join(f"<grant xmlns='{GRANT}'>{one}</grant>" for one in grants)
        return f"<delegation xmlns='{DELEGATION}'{heads}>{inside}</delegation>"

    def path(self, vector: Mapping[str, Any]) -> str:
        """Return the <delegation/> of a vector in the folder `paths`."""
        xml: str = vector["xml"]
        for address in sorted(_addresses(xml), key=len, reverse=True):
            bare, slash, resource = address.partition("/")
            xml = xml.replace(f">{address}<", f">{self._address(bare)}{slash}{resource}<")
            xml = xml.replace(f"'{address}'", f"'{self._address(bare)}{slash}{resource}'")
        return xml

    def seconds(self, vector: Mapping[str, Any], at: int) -> int:
        """Return a time of a vector as one of this run."""
        early = vector.get("reason") == "not-yet-valid"
        return int(at) - int(vector["now"]) + self.now + (_MARGIN_S if early else -_MARGIN_S)

    def _claims(self, vector: Mapping[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
        made = dict(claims)
        for name in ("iss", "sub", "aud"):
            bare, slash, resource = made[name].partition("/")
            made[name] = self._address(bare) + slash + resource
        for name in ("exp", "iat"):
            made[name] = self.seconds(vector, made[name])
        made["skills"] = [self.skills.get(one, one) for one in made["skills"]]
        if "cnf" in made:
            named = next(one for one in _SIGNERS if key_of(one).x == made["cnf"]["jwk"]["x"])
            made["cnf"] = {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": self._key(named).x}}
        return made

    def _signed(self, compact: str, claims: dict[str, Any]) -> str:
        header = part(compact, 0)
        signer = next(one for one in _SIGNERS if key_of(one).kid == header["kid"])
        key = self._key(signer)
        header["kid"] = key.kid
        made = key.sign(claims, header)
        content, _, signature = made.rpartition(".")
        if not compact.rpartition(".")[2]:
            return f"{content}."
        if is_signed(compact, key_of(signer).x):
            return made
        other = bytearray(decode(signature))
        other[0] ^= 1
        return f"{content}.{encode(bytes(other))}"

    def _key(self, signer: str) -> Key:
        return key_of(self._address(signer) if "@" in signer else signer)

    def _address(self, address: str) -> str:
        bare = address.partition("/")[0]
        local = bare.partition("@")[0] if "@" in bare else "agent"
        return self.addresses.get(address, f"{local}@{self.users}")


def _addresses(xml: str) -> Iterator[str]:
    from xml.etree.ElementTree import fromstring  # noqa: PLC0415 - for the paths alone

    tree = fromstring(xml)  # noqa: S314 - a file of the package
    if tree.get("origin"):
        yield tree.get("origin", "")
    for one in tree:
        yield one.text or ""
