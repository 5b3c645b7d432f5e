"""Logins: the vectors of the RFCs, the choice of a mechanism, and servers that prove nothing."""

from base64 import b64decode
from hashlib import sha256

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramMechanism  # type: ignore[import-untyped]

from xep.sasl import (
    END_POINT,
    Plain,
    SaslError,
    Scram,
    choose,
    decode_data,
    encode_data,
    end_point_of,
)

# RFC 5802 §5 and RFC 7677 §3: the user is "user", the password "pencil".
VECTORS = [
    (
        "SCRAM-SHA-1",
        "fyko+d2lbbFgONRv9qkxdawL",
        "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        "SCRAM-SHA-256",
        "rOprNGfwEbeRWgbNEkqO",
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        (
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        ),
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


@pytest.mark.parametrize(("name", "nonce", "first", "challenge", "final", "proof"), VECTORS)
def test_the_vectors_of_the_specifications(
    name: str, nonce: str, first: str, challenge: str, final: str, proof: str
) -> None:
    exchange = Scram(name, "user", "pencil", nonce=nonce)
    assert exchange.first() == first.encode()
    assert exchange.respond(challenge.encode()) == final.encode()
    exchange.check(proof.encode())


@pytest.mark.parametrize(("name", "nonce", "first", "challenge", "final", "proof"), VECTORS)
def test_the_proof_may_come_as_a_challenge(
    name: str, nonce: str, first: str, challenge: str, final: str, proof: str
) -> None:
    exchange = Scram(name, "user", "pencil", nonce=nonce)
    exchange.first()
    exchange.respond(challenge.encode())
    assert exchange.respond(proof.encode()) == b""
    exchange.check(b"")


@pytest.mark.parametrize(("name", "nonce", "first", "challenge", "final", "proof"), VECTORS)
def test_a_server_without_the_right_proof_is_not_trusted(
    name: str, nonce: str, first: str, challenge: str, final: str, proof: str
) -> None:
    for wrong in (proof[:-5] + "AAA==", "", "e=other-error", "v=", "x"):
        exchange = Scram(name, "user", "pencil", nonce=nonce)
        exchange.first()
        exchange.respond(challenge.encode())
        with pytest.raises(SaslError):
            exchange.check(wrong.encode())
    early = Scram(name, "user", "pencil")
    early.first()
    with pytest.raises(SaslError, match="before it proved"):
        early.check(proof.encode())


@given(challenge=st.binary(max_size=80))
def test_a_challenge_that_is_none_is_an_error(challenge: bytes) -> None:
    exchange = Scram("SCRAM-SHA-256", "user", "pencil")
    exchange.first()
    with pytest.raises(SaslError):
        exchange.respond(challenge)


def test_a_nonce_that_is_not_ours_is_refused() -> None:
    exchange = Scram("SCRAM-SHA-1", "user", "pencil", nonce="ours")
    exchange.first()
    with pytest.raises(SaslError):
        exchange.respond(b"r=theirs,s=QSXCR+Q6sek8bf92,i=4096")


def test_the_best_mechanism_is_chosen() -> None:
    def name(*offered: str, secure: bool = True) -> str | None:
        found = choose(offered, "user", "pencil", secure=secure)
        return None if found is None else found.mechanism

    assert name("PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256") == "SCRAM-SHA-256"
    assert name("PLAIN", "SCRAM-SHA-1", "X-OAUTH2") == "SCRAM-SHA-1"
    assert name("PLAIN", "DIGEST-MD5") == "PLAIN"
    assert name("PLAIN", secure=False) is None, "the password is never sent in clear"
    assert name("EXTERNAL", "ANONYMOUS") is None


def test_channel_binding_is_used_where_the_server_announces_it() -> None:
    certificate = b64decode(
        "".join(
            trustme.CA()
            .issue_cert("example.com")
            .cert_chain_pems[0]
            .bytes()
            .decode()
            .splitlines()[1:-1]
        )
    )
    data = end_point_of(certificate)
    assert data == sha256(certificate).digest()
    offered = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256")
    exchange = choose(offered, "user", "pencil", secure=True, bindings=[END_POINT], end_point=data)
    assert exchange is not None
    assert exchange.mechanism == "SCRAM-SHA-256-PLUS"
    mechanism = ScramMechanism("SCRAM-SHA-256-PLUS")
    info = mechanism.make_auth_info("pencil")
    server = mechanism.make_server(lambda _: info, channel_binding=(END_POINT, data))
    server.set_client_first(exchange.first().decode())
    server.set_client_final(exchange.respond(server.get_server_first().encode()).decode())
    exchange.check(server.get_server_final().encode())

    # Of another type: not used, and nothing is claimed about what the server offers (RFC 5802 §6).
    other = choose(offered, "user", "pencil", secure=True, bindings=["tls-unique"], end_point=data)
    assert other is not None
    assert other.first().startswith(b"n,,")
    # Not offered at all: the server learns that it could have been.
    none = choose(offered[1:], "user", "pencil", secure=True, end_point=data)
    assert none is not None
    assert none.first().startswith(b"y,,")


def test_plain_is_one_message() -> None:
    exchange = Plain("user", "pencil")
    assert exchange.first() == b"\0user\0pencil"
    exchange.check(b"")
    with pytest.raises(SaslError):
        exchange.respond(b"more")


def test_a_password_that_cannot_be_prepared_is_named() -> None:
    with pytest.raises(SaslError, match="cannot be used"):
        Scram("SCRAM-SHA-1", "user", "bell\x07")


@given(data=st.binary(max_size=50))
def test_data_comes_back(data: bytes) -> None:
    assert decode_data(encode_data(data)) == data


def test_what_is_no_base64_is_refused() -> None:
    assert decode_data(None) == decode_data(" = ") == b""
    with pytest.raises(SaslError):
        decode_data("n,,")
