"""The vectors of the specification: our verifier agrees with each, and they are what is written."""

import json
from pathlib import Path

import msgspec
import pytest

from component.grants import GrantError, Presented, PublicKey, verify
from component.grants.grant import Grant
from component.policy import PeerRule, Policy
from component.skills import skill
from component.tasks.delegation import check
from component.tasks.request import Request
from conformance.requirements import load
from tests.component.grants import outside_verifier, path_vectors
from tests.component.grants.path_vectors import PATHS, PathVector
from tests.component.grants.vectors import FOLDER, Vector, delegation_of, vectors
from xep.binding import ContentError, encode, read
from xep.fluux_agent.delegation import Delegation
from xep.jid import JID
from xep.stanza_error import StanzaError

every_vector = pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem
)


@skill(read_only=True)
def sources() -> str:
    """Find sources."""
    return ""


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
def test_another_implementation_judges_them_alike(path: Path) -> None:
    vector = json.loads(path.read_text("utf-8"))
    if vector["valid"]:
        assert outside_verifier.verify(vector) == vector["effective"]
    else:
        with pytest.raises(outside_verifier.Refused, match=f"^{vector['reason']}$"):
            outside_verifier.verify(vector)


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


def test_the_vectors_of_paths_are_what_their_script_makes() -> None:
    written = {path.name: path.read_text("utf-8") for path in PATHS.glob("*.json")}
    assert written == path_vectors.vectors(), "run python -m tests.component.grants.path_vectors"


def test_the_vectors_name_sentences_of_the_specification() -> None:
    known = load().by_id
    for path in FOLDER.rglob("*.json"):
        assert json.loads(path.read_text("utf-8"))["requirement"] in known, path


@pytest.mark.parametrize("path", sorted(PATHS.glob("*.json")), ids=lambda path: path.stem)
def test_a_path_is_judged_as_its_vector_says(path: Path) -> None:
    vector = msgspec.json.decode(path.read_bytes(), type=PathVector)
    assert (_condition_of(vector) is None) == vector.valid
    assert _condition_of(vector) == vector.condition


def _condition_of(vector: PathVector) -> str | None:
    """Return the condition with which this project refuses a delegation."""
    domain, agent = vector.addresses
    try:
        delegation = read(vector.xml, Delegation)
    except ContentError:
        return "malformed"
    # In the vectors the default agent has another name than here.
    renamed = tuple(
        JID.parse(f"assistant@{domain}") if str(each) == agent else each for each in delegation.via
    )
    delegation = msgspec.structs.replace(delegation, via=renamed)
    sender = JID.parse(vector.sender)
    request = Request("x", sender, sender, JID.parse(domain), delegation=delegation)
    policy = Policy(
        allowed_domains=[],
        peers=[PeerRule(name="b", jid=vector.sender, offers=("*",), origins=("example.com",))],
    )
    try:
        check(request, sources, policy)
    except StanzaError as error:
        return type(error.application[0]).xml.local
    return None


def test_the_vectors_cover_every_rule_of_a_chain() -> None:
    reasons = {msgspec.json.decode(text, type=Vector).reason for text in vectors().values()}
    assert reasons >= {
        *("wrong-key", "wrong-parent", "wrong-path", "wrong-origin", "wrong-audience"),
        *("wider-skills", "later-expiry", "larger-budget", "too-deep", "expired"),
        *("not-yet-valid", "skill-not-granted", "malformed"),
    }
