"""A verifier of grants that was written from the specification and the README of the vectors.

It uses nothing of this project: a JWS library and the standard library.
"""

import base64
import hashlib
import json
from decimal import Decimal
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

_MEMBERS = {
    "iss": str,
    "sub": str,
    "aud": str,
    "skills": list,
    "depth": int,
    "exp": int,
    "iat": int,
}


class Refused(Exception):  # noqa: N818 - a word of the specification
    """The chain is not permitted; the text is the reason."""


def verify(vector: dict[str, Any]) -> dict[str, Any]:
    """Return the claims of the last grant. Raises Refused."""
    grants: list[str] = vector["grants"]
    headers = [_part(one, 0) for one in grants]
    claims = [_claims(one) for one in grants]
    for header in headers:
        _need(header.keys() == {"alg", "typ", "kid"}, "malformed")
        _need((header["alg"], header["typ"]) == ("Ed25519", "fluux-grant+jwt"), "malformed")
    published = vector["published"].get(claims[0]["iss"], {})
    _need(headers[0]["kid"] in published, "wrong-key")
    _signed(grants[0], headers[0], published[headers[0]["kid"]])
    _need("par" not in claims[0], "wrong-parent")
    for number in range(1, len(grants)):
        _follows(claims[number - 1], claims[number], grants[number - 1])
        _signed(grants[number], headers[number], claims[number - 1]["cnf"]["jwk"])
    for one in claims:
        _need(one["exp"] + 30 >= vector["now"], "expired")
        _need(one["iat"] - 30 <= vector["now"], "not-yet-valid")
    _about(vector, claims)
    return claims[-1]


def _follows(parent: dict[str, Any], child: dict[str, Any], written: str) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(written.encode()).digest())
    _need(child.get("par") == digest.rstrip(b"=").decode(), "wrong-parent")
    _need("cnf" in parent and parent["depth"] > child["depth"], "too-deep")
    _need(child["iss"] == parent["aud"], "wrong-path")
    _need(child["sub"] == parent["sub"], "wrong-origin")
    _need(all(_covers(parent["skills"], one) for one in child["skills"]), "wider-skills")
    _need(child["exp"] <= parent["exp"], "later-expiry")
    _smaller(parent.get("budget", {}), child.get("budget", {}))


def _about(vector: dict[str, Any], claims: list[dict[str, Any]]) -> None:
    given, last = vector["delegation"], claims[-1]
    _need([one["iss"] for one in claims] == given["via"], "wrong-path")
    _need(last["iss"] == vector["sender"], "wrong-path")
    _need(last["sub"] == given["origin"], "wrong-origin")
    _need(last["aud"] == vector["receiver"], "wrong-audience")
    _need(_covers(last["skills"], vector["skill"]), "skill-not-granted")
    _need(vector.get("deadline", last["exp"] + 1) <= last["exp"], "later-expiry")
    budget = {"usd": given.get("budget-usd"), "tokens": given.get("budget-tokens")}
    _smaller(last.get("budget", {}), {name: one for name, one in budget.items() if one is not None})


def _signed(compact: str, header: dict[str, Any], jwk: dict[str, str]) -> None:
    key = OKPKey.import_key(jwk)  # type: ignore[arg-type]  # a JWK
    _need(header["kid"] == key.thumbprint(), "wrong-key")
    try:
        jws.deserialize_compact(compact, key, ["Ed25519"])
    except (JoseError, ValueError):
        raise Refused("wrong-key") from None


def _claims(compact: str) -> dict[str, Any]:
    claims = _part(compact, 1)
    for name, kind in _MEMBERS.items():
        _need(isinstance(claims.get(name), kind), "malformed")
    for name in ("iss", "sub", "aud"):
        _need("/" not in claims[name], "malformed")
    _need(all("*" not in one[:-1] for one in claims["skills"]), "malformed")
    return claims


def _part(compact: str, number: int) -> dict[str, Any]:
    text = compact.split(".")[number]
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return decoded


def _covers(patterns: list[str], name: str) -> bool:
    return any(one == name or (one.endswith("*") and name.startswith(one[:-1])) for one in patterns)


def _smaller(given: dict[str, Any], asked: dict[str, Any]) -> None:
    for name, limit in given.items():
        _need(name in asked and Decimal(asked[name]) <= Decimal(limit), "larger-budget")


def _need(holds: object, reason: str) -> None:
    if not holds:
        raise Refused(reason)
