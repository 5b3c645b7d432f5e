"""Capabilities have one spelling each: what could be read in two ways is refused with a hint."""

import ipaddress
import posixpath
import re
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.http.targets import target_of
from component.policy.flows import covers
from component.skills.capabilities import (
    DEFAULT_PORTS,
    AbsolutePath,
    Capabilities,
    CredentialName,
    Endpoint,
    ModelName,
    RecipientAddress,
)
from component.skills.spec import SkillSpec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://api.example.com", ("https", "api.example.com", 443)),
        ("https://api.example.com:8443", ("https", "api.example.com", 8443)),
        ("imaps://mail.example.com", ("imaps", "mail.example.com", 993)),
        ("tcp://db.example.com:5432", ("tcp", "db.example.com", 5432)),
        ("http://192.0.2.1:80", ("http", "192.0.2.1", 80)),
        ("https://[2001:db8::1]", ("https", "2001:db8::1", 443)),
        ("https://xn--bcher-kva.example", ("https", "xn--bcher-kva.example", 443)),
    ],
)
def test_an_endpoint_is_parsed_into_scheme_host_and_port(
    text: str, expected: tuple[str, str, int]
) -> None:
    found = Endpoint.parse(text)
    assert (found.scheme, found.host, found.port) == expected
    assert Endpoint.parse(found) == found


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("api.example.com:443", "no scheme"),
        ("api.example.com", "no scheme"),
        ("https://api.example.com/", "path"),
        ("https://api.example.com#x", "path"),
        ("https://api.example.com?x=1", "wildcard"),
        ("https://*.example.com", "wildcard"),
        ("https://api.example.com.", "'api.example.com'"),
        ("https://API.example.com", "'https://api.example.com'"),
        ("https://user@api.example.com", "user name"),
        ("https://user:password@api.example.com", "user name"),
        ("https://api.example.com@evil.example", "user name"),
        ("https://api%2eexample.com", "percent"),
        ("https://[fe80::1%25eth0]", "percent"),
        ("https://bücher.example", "xn--"),
        ("https://api\N{IDEOGRAPHIC FULL STOP}example.com", "xn--"),
        ("https://xn--a.example", "IDNA"),
        ("https://api..example.com", "single dots"),
        ("https://-api.example.com", "host name"),
        ("https://under_score.example.com", "host name"),
        ("https://", "host name"),
        ("https://api.example.com:", "port"),
        ("https://api.example.com:0", "port"),
        ("https://api.example.com:080", "port"),
        ("https://api.example.com:65536", "port"),
        ("https://api.example.com:" + "9" * 5000, "port"),
        ("tcp://api.example.com", "port"),
        ("gopher://api.example.com", "scheme"),
        ("https://127.1", "four numbers"),
        ("https://2130706433", "four numbers"),
        ("https://0x7f.0.0.1", "four numbers"),
        ("https://0x7f000001", "four numbers"),
        ("https://010.0.0.1", "four numbers"),
        ("https://2001:db8::1", "brackets"),
        ("https://[2001:DB8::1]", "capitals"),
        ("https://[2001:db8:0::1]", "[2001:db8::1]"),
        ("https://[::ffff:192.0.2.1]", "192.0.2.1"),
        ("https://[nothing]", "IPv6"),
        ("https://api.example.com\\@evil.example", "user name"),
        ("https://api.example.com\\", "backslash"),
        (" https://api.example.com", "white space"),
        ("https://api.example.com\n", "white space"),
        ("https://api.exam\tple.com", "white space"),
    ],
)
def test_endpoints_that_could_be_read_in_two_ways(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        Endpoint.parse(text)


URLS = st.text(alphabet="abz019.:/@[]%*?#-_ xÄ\\~", max_size=40)


@given(st.sampled_from([*DEFAULT_PORTS, "tcp", "x"]), URLS)
def test_every_accepted_endpoint_means_the_same_to_other_readers(scheme: str, rest: str) -> None:
    try:
        found = Endpoint.parse(f"{scheme}://{rest}")
    except ValueError:
        return
    parts = urlsplit(found)
    assert (parts.scheme, parts.hostname, parts.port) == (found.scheme, found.host, found.port)
    assert parts.username is None
    assert (parts.path, parts.query, parts.fragment) == ("", "", "")
    assert Endpoint.parse(found) == found
    if found.scheme in ("http", "https"):  # as the code that makes the requests reads it
        target = target_of(found)
        assert (target.scheme, target.host, target.port) == (found.scheme, found.host, found.port)


@given(st.ip_addresses())
def test_addresses_have_one_spelling(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return
    assert Endpoint.parse(f"https://{host}").host == str(address)
    if isinstance(address, ipaddress.IPv6Address) and address.exploded != str(address):
        with pytest.raises(ValueError, match="another spelling"):
            Endpoint.parse(f"https://[{address.exploded}]")


@pytest.mark.parametrize(
    "text",
    [
        *("data", "./data", "~/data", "~root", "$HOME/x", "/", "//srv", "/srv/", "/srv//x"),
        *("/srv/../etc", "/srv/.", "/srv/%2e%2e", "/srv/*", "/srv/a b", "/srv\\x", "/a:b", "/\0"),
        *("/caf\N{LATIN SMALL LETTER E}\N{COMBINING ACUTE ACCENT}", "/srv/[a]", ""),
    ],
)
def test_paths_that_could_be_read_in_two_ways(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        AbsolutePath.parse(text)


@given(st.text(alphabet="ab./~%é ", max_size=12).map("/".__add__))
def test_accepted_paths_are_normal(text: str) -> None:
    try:
        found = AbsolutePath.parse(text)
    except ValueError:
        return
    assert posixpath.normpath(found) == found == text
    assert posixpath.isabs(found)


@pytest.mark.parametrize(
    "text", ["Juliet@example.com", "juliet@example.com/x", "juliet@EXAMPLE.com", "@", "a*@b.c", ""]
)
def test_recipients_have_one_spelling(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        RecipientAddress.parse(text)


def test_recipients_credentials_and_models_have_valid_names() -> None:
    assert RecipientAddress.parse("juliet@example.com") == "juliet@example.com"
    assert CredentialName.parse("github-token") == "github-token"
    assert ModelName.parse("llama3.2:3b") == "llama3.2:3b"
    for bad in ("GITHUB", "a b", "a--b", "-a", "a:b", "", "x" * 65):
        with pytest.raises(ValueError, match="credential"):
            CredentialName.parse(bad)
    with pytest.raises(ValueError, match="model"):
        ModelName.parse("a b")


def test_the_texts_are_those_of_policies() -> None:
    all_of_them = Capabilities(
        network=(
            Endpoint.parse("https://[2001:db8::1]"),
            Endpoint.parse("https://api.example.com"),
        ),
        filesystem_read=(AbsolutePath.parse("/srv/menus"),),
        credential=(CredentialName.parse("github-token"),),
        xmpp=(RecipientAddress.parse("juliet@example.com"),),
        memory_write=("skill",),
        clock=True,
    )
    assert all_of_them.texts == (
        "network:2001%3Adb8%3A%3A1:443:https",
        "network:api.example.com:443:https",
        "filesystem:read:/srv/menus",
        "credential:github-token",
        "memory:write:skill",
        "xmpp:juliet@example.com",
        "clock",
    )
    SkillSpec(name="one", input_schema={}, capabilities=all_of_them.texts)
    assert covers(["network:api.example.com:443"], all_of_them.texts[1:2]) is None
    assert covers(["network:api.example.com:44"], all_of_them.texts[1:2]) is not None
    assert len(all_of_them.described) == len(all_of_them.texts)
    assert all_of_them.connects("https", "api.example.com", 443)
    assert not all_of_them.connects("http", "api.example.com", 443)
    assert Capabilities().texts == ()


def test_nothing_is_declared_twice() -> None:
    one = Endpoint.parse("https://api.example.com")
    with pytest.raises(ValueError, match="twice"):
        Capabilities(network=(one, Endpoint.parse("https://api.example.com:443")))
