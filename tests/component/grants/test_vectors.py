"""The vectors of the specification: our verifier agrees with each, and they are what is written."""

from pathlib import Path

import msgspec
import pytest

from component.grants import GrantError, Presented, PublicKey, verify
from component.grants.grant import Grant
from tests.component.grants.vectors import FOLDER, Vector, delegation_of, vectors
from xep.binding import encode, read
from xep.fluux_agent.delegation import Delegation
from xep.jid import JID

every_vector = pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem
)


@every_vector
def test_a_chain_of_grants_is_judged_as_its_vector_says(path: Path) -> None:
    vector = msgspec.json.decode(path.read_bytes(), type=Vector)
    delegation = delegation_of(vector)
    presented = Presented(
        delegation=delegation,
        skill=vector.skill,
        sender=JID.parse(vector.sender),
        receiver=JID.parse(vector.receiver),
        deadline=vector.deadline,
        now=vector.now,
    )
    published = vector.published[vector.claims[0]["iss"]]
    keys = msgspec.convert(published, dict[str, PublicKey])
    if vector.valid:
        effective = verify([each.jws for each in delegation.grants], keys, presented)
        assert effective == msgspec.convert(vector.effective, Grant)
    else:
        with pytest.raises(GrantError) as raised:
            verify([each.jws for each in delegation.grants], keys, presented)
        assert raised.value.reason == vector.reason
        assert str(raised.value).endswith(".")


@every_vector
def test_the_xml_of_a_vector_is_its_delegation(path: Path) -> None:
    vector = msgspec.json.decode(path.read_bytes(), type=Vector)
    assert read(vector.xml, Delegation) == delegation_of(vector)
    assert encode(delegation_of(vector)) == vector.xml


def test_the_vectors_are_what_their_script_makes() -> None:
    written = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    made = vectors()
    assert written.keys() == made.keys()
    assert written == made, "run python -m tests.component.grants.vectors"


def test_the_vectors_cover_every_rule_of_a_chain() -> None:
    reasons = {msgspec.json.decode(text, type=Vector).reason for text in vectors().values()}
    assert reasons >= {
        *("wrong-key", "wrong-parent", "wrong-path", "wrong-origin", "wrong-audience"),
        *("wider-skills", "later-expiry", "larger-budget", "too-deep", "expired"),
        *("not-yet-valid", "skill-not-granted", "malformed"),
    }
