"""JIDs (RFC 7622): what is accepted, what it becomes, what is refused and how."""
# ruff: noqa: RUF001 - the look-alikes are what is tested

import subprocess
import sys

import idna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xep import jid as jid_module
from xep.jid import JID, JIDError, learn_spelling

# The cases of RFC 7622 §3.5, first table, and what each becomes.
VALID = [
    ("juliet@example.com", JID("juliet", "example.com", None)),
    ("juliet@example.com/foo", JID("juliet", "example.com", "foo")),
    ("juliet@example.com/foo bar", JID("juliet", "example.com", "foo bar")),
    ("juliet@example.com/foo@bar", JID("juliet", "example.com", "foo@bar")),
    ("foo\\20bar@example.com", JID("foo\\20bar", "example.com", None)),
    ("fussball@example.com", JID("fussball", "example.com", None)),
    ("fußball@example.com", JID("fußball", "example.com", None)),
    ("π@example.com", JID("π", "example.com", None)),
    ("Σ@example.com/foo", JID("σ", "example.com", "foo")),
    ("σ@example.com/foo", JID("σ", "example.com", "foo")),
    ("ς@example.com/foo", JID("ς", "example.com", "foo")),
    ("king@example.com/♚", JID("king", "example.com", "♚")),
    ("example.com", JID(None, "example.com", None)),
    ("example.com/foobar", JID(None, "example.com", "foobar")),
    ("a.example.com/b@example.net", JID(None, "a.example.com", "b@example.net")),
]
# The second table.
INVALID = [
    '"juliet"@example.com',
    "foo bar@example.com",
    "juliet@example.com/",
    "@example.com/foo",
    "henryⅣ@example.com",
    "♚@example.com",
    "juliet@",
    "/foobar",
]


@pytest.mark.parametrize(("text", "expected"), VALID)
def test_rfc_7622_valid(text: str, expected: JID) -> None:
    assert JID.parse(text) == expected


@pytest.mark.parametrize("text", INVALID)
def test_rfc_7622_invalid(text: str) -> None:
    with pytest.raises(JIDError):
        JID.parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ROMEO@Example.ORG/Balcony", "romeo@example.org/Balcony"),
        ("a@example.org.", "a@example.org"),
        ("a@example.org./x", "a@example.org/x"),
        ("a@XN--BCHER-KVA.example", "a@bücher.example"),
        ("a@BÜCHER.example", "a@bücher.example"),
        ("a@bu\u0308cher.example", "a@bücher.example"),
        ("a@ｅｘａｍｐｌｅ。org", "a@example.org"),
        ("ｒｏｍｅｏ@example.org", "romeo@example.org"),
        ("cafe\u0301@example.org", "café@example.org"),
        ("a@example.org/x\u00a0y", "a@example.org/x y"),
        ("a@XN--58D", "a@\u13a0"),  # Cherokee: IDNA2008 allows its capitals only
        ("a@\u13a0", "a@\u13a0"),
        ("127.0.0.1", "127.0.0.1"),
        ("a@[2001:DB8::1]/x", "a@[2001:db8::1]/x"),
    ],
)
def test_a_jid_is_mapped_to_its_canonical_text(text: str, canonical: str) -> None:
    assert str(JID.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a@b..c",
        "a@.b",
        "a@b..",
        "a@b@c",
        "a@-b",
        "a@b-",
        "a@ab--c",
        "a@under_score",
        "a@b c",
        "a@b:5222",
        "a@xn--a",
        "a@xn--bcher-kva-.example",
        "a@" + "x" * 64,
        "a@" + "ü" * 60,
        "a@ßs.example\u0000",
        "a@[::1",
        "a@[::1]x",
        "a@[1.2.3.4]",
        "a@[fe80::1%eth0]",
        "ａ＠b@c",  # a full-width @ becomes one, which a localpart must not hold
        "a\t@b",
        "a@b/\n",
        "a@b/\x7f",
        "\ud800@b",
        "a@\ud800",
        "a@b/\ud800",
        "אa1@b",  # the Bidi Rule (RFC 5893) does not let a right-to-left string hold `a`
    ],
)
def test_an_invalid_jid_is_refused_with_a_printable_sentence(text: str) -> None:
    with pytest.raises(JIDError) as caught:
        JID.parse(text)
    message = str(caught.value)
    assert message.startswith(("The localpart", "The domainpart", "The resourcepart"))
    assert message.endswith(".")
    assert message.isascii()
    assert message.isprintable()


@pytest.mark.parametrize("character", ["a", "é", "漢", "😀"])
def test_parts_hold_1023_octets(character: str) -> None:
    octets = len(character.encode())
    fits = 1023 // octets
    resource = character * fits
    assert JID.parse(f"a@b/{resource}").resource == resource
    with pytest.raises(JIDError, match=r"resourcepart .* longer than 1023 octets"):
        JID.parse(f"a@b/{resource}{character}")
    if character != "😀":
        assert JID.parse(f"{resource}@b").local == resource
        with pytest.raises(JIDError, match=r"localpart .* longer than 1023 octets"):
            JID.parse(f"{resource}{character}@b")


def test_domain_holds_1023_octets() -> None:
    domain = "a." * 511 + "a"
    assert JID.parse(domain).domain == domain
    with pytest.raises(JIDError, match="longer than 1023 octets"):
        JID.parse("a" + domain)


@pytest.mark.parametrize("part", ["{}@b", "a@{}", "a@b/{}"])
@pytest.mark.parametrize("unit", ["x", "é", "ü.", "\u0301", "\u094d\u200d", "\ud800", "\0", "xn--"])
def test_huge_texts_are_refused_unread(part: str, unit: str) -> None:
    """Parsing megabytes takes no more than looking at a part's length."""
    with pytest.raises(JIDError, match="longer than 1023 octets"):
        JID.parse(part.format(unit * 1_000_000))


def test_a_jid_gives_its_bare_its_domain_and_its_full_jid() -> None:
    full = JID.parse("a@b/c")
    assert not full.is_bare
    assert full.bare == JID("a", "b", None)
    assert full.bare.is_bare
    assert full.bare.bare == full.bare
    assert full.domain_jid == JID(None, "b", None)
    assert JID.parse("b/c").domain_jid == JID.parse("b").domain_jid == JID(None, "b", None)
    assert full.with_resource("d\u00a0e") == JID("a", "b", "d e")
    assert {full, JID.parse("A@B./c")} == {full}
    with pytest.raises(JIDError):
        full.with_resource("")


def test_a_jid_is_immutable() -> None:
    with pytest.raises(AttributeError):
        JID.parse("a@b").local = "c"  # type: ignore[misc]


# Text that comes near to being a JID: separators, what PRECIS maps, and any character at all.
_spiced = st.text(
    st.one_of(
        st.sampled_from(
            "aZ09-._@/ \"'[]:%ßΣςſİǅⅣ＠／。．ｆ\u0301\u0660\u06f0\u00b7\u200d\u094dא☃xn"
        ),
        st.characters(),
        st.characters(exclude_categories=()),
    ),
    max_size=40,
)
_texts = st.one_of(
    _spiced,
    st.builds("{}@{}.{}/{}".format, _spiced, _spiced, _spiced, _spiced),
    st.builds("{}@xn--{}".format, _spiced, st.text("abcdefgh0189-", max_size=20)),
    st.builds("{}@[{}]".format, _spiced, st.ip_addresses().map(str)),
)


@given(_texts)
def test_nothing_but_jid_errors_and_idempotence(text: str) -> None:
    try:
        jid = JID.parse(text)
    except JIDError:
        return
    assert JID.parse(str(jid)) == jid
    assert str(JID.parse(str(jid))) == str(jid)
    assert JID.parse(str(jid.bare)) == jid.bare
    for part in (jid.local, jid.domain, jid.resource):
        assert part is None or 1 <= len(part.encode()) <= 1023


_ascii = st.text(st.characters(max_codepoint=127), min_size=1, max_size=20)


@given(_ascii)
def test_ascii_shortcut_of_localpart_agrees_with_precis(text: str) -> None:
    def by_precis() -> str:
        prepared = jid_module._enforce("UsernameCaseMapped", "localpart", text)
        if set(prepared) & set("\"&'/:<>@"):
            raise JIDError
        return prepared

    assert _outcome(lambda: jid_module._prepare_local(text)) == _outcome(by_precis)


@given(_ascii)
def test_ascii_shortcut_of_resourcepart_agrees_with_precis(text: str) -> None:
    assert _outcome(lambda: jid_module._prepare_resource(text)) == _outcome(
        lambda: jid_module._enforce("OpaqueString", "resourcepart", text)
    )


@given(st.text("ab0-._ ", min_size=1, max_size=12) | st.integers(60, 70).map("a".__mul__))
def test_ascii_shortcut_of_labels_agrees_with_idna(text: str) -> None:
    import idna

    def by_idna() -> str:
        try:
            return ".".join(
                idna.alabel(label).decode() for label in text.removesuffix(".").split(".")
            )
        except ValueError as error:
            raise JIDError from error

    assert _outcome(lambda: jid_module._prepare_domain(text)) == _outcome(by_idna)


@given(st.text('aA0-._@/ "&!~\n', max_size=30) | _texts)
def test_shortcut_for_plain_addresses_agrees_with_the_parts(text: str) -> None:
    assert _outcome(lambda: jid_module._parse(text)) == _outcome(lambda: jid_module._prepare(text))


def _outcome(parse: object) -> object:
    try:
        return parse()  # type: ignore[operator]
    except JIDError:
        return None


def test_accounts_that_a_server_keeps_apart_are_not_joined() -> None:
    small, capital = "\u10d0@b/x", "\u1c90@b/x"
    assert JID.parse(capital) == JID.parse(small)
    assert JID.parse_delivered(small) == JID.parse(small)
    for other in (capital, "A@b", "ａ@b", "cafe\u0301@b"):
        with pytest.raises(JIDError, match="not in its prepared form"):
            JID.parse_delivered(other)


@pytest.mark.parametrize(
    "resource", ["☎\ufe0f", "❤\ufe0f", "a\u200db", "\U0001f469\u200d\U0001f692"]
)
def test_a_resource_that_servers_allow_is_taken_as_it_is(resource: str) -> None:
    found = JID.parse_delivered(f"a@b/{resource}")
    assert found.resource == resource
    assert JID.parse(str(found)) == found


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\ue000"])
def test_a_control_character_in_a_resource_is_refused(character: str) -> None:
    with pytest.raises(JIDError, match="resourcepart"):
        JID.parse_delivered(f"a@b/ü{character}")


def test_an_address_is_written_with_the_domain_as_its_server_spells_it() -> None:
    delivered, domain = "ann@xn--mnchen-3ya.example/x", "münchen.example"
    assert JID.parse(f"ann@{domain}").on_wire() == f"ann@{domain}"
    ann = JID.parse_delivered(delivered)
    assert str(ann) == f"ann@{domain}/x"
    assert ann.on_wire() == delivered
    assert JID.parse(f"bob@{domain}").on_wire() == "bob@xn--mnchen-3ya.example"
    JID.parse_delivered(f"carol@{domain}")
    assert ann.on_wire() == f"ann@{domain}/x"


def test_a_configured_domain_is_written_as_it_is_there_and_so_are_those_above_it() -> None:
    learn_spelling("agent.XN--KLN-SNA.example")
    assert JID.parse("agent.köln.example").on_wire() == "agent.xn--kln-sna.example"
    assert JID.parse("ann@köln.example").on_wire() == "ann@xn--kln-sna.example"
    assert JID.parse("other.köln.example").on_wire() == "other.köln.example"


def test_a_delivered_domain_does_not_speak_for_those_above_it() -> None:
    mallory = JID.parse_delivered("mallory@guest.xn--zrich-kva.example")
    assert mallory.on_wire() == "mallory@guest.xn--zrich-kva.example"
    assert JID.parse("ann@zürich.example").on_wire() == "ann@zürich.example"


def test_delivered_resources_may_be_mapped() -> None:
    assert JID.parse_delivered("a@b/\u00a0") == JID.parse("a@b/ ")


@pytest.mark.parametrize(
    "domain",
    [
        "Example.com",
        "example.com.",
        "example.com\u3002",
        "example\u3002com",
        "example\uff0ecom",
        "example\uff61com",
        "ｅxample.com",
        "BÜCHER.example",
        "bu\u0308cher.example",
        "XN--BCHER-KVA.example",
        "xn--bcher-kva.example.",
        "straße.example",  # strasse.example by IDNA2003
        "σοφος.example\u3002",
        "σοφός\u3002example",
        "βόλος.example",  # another one by IDNA2003
        "[::1].",
        "[0:0::1]",
        "[::FFFF]",
        "[::ffff:0102:0304]",
    ],
)
def test_domains_that_a_server_may_keep_apart_are_not_joined(domain: str) -> None:
    for text in (domain, f"a@{domain}", f"a@{domain}/r"):
        with pytest.raises(JIDError):
            JID.parse_delivered(text)


@pytest.mark.parametrize(
    "domain",
    [
        "example.com",
        "bücher.example",
        "xn--bcher-kva.example",
        "xn--strae-oqa.example",
        "日本語.example",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "[::ffff:1.2.3.4]",
    ],
)
def test_a_domain_is_delivered_by_its_name_in_unicode_or_in_the_dns(domain: str) -> None:
    assert JID.parse_delivered(f"a@{domain}") == JID.parse(f"a@{domain}")


def test_an_ipv6_address_has_one_text() -> None:
    for text in ("[::1]", "[0:0:0:0:0:0:0:1]", "[0::0001]"):
        assert JID.parse(text).domain == "[::1]"
    for text in ("[::ffff:1.2.3.4]", "[::FFFF:0102:0304]"):
        assert JID.parse(text).domain == "[::ffff:1.2.3.4]"


@given(_texts)
def test_delivered_is_parsed_and_keeps_the_localpart(text: str) -> None:
    jid = _outcome(lambda: JID.parse_delivered(text))
    assert jid in (None, _outcome(lambda: JID.parse(text)))
    if isinstance(jid, JID):
        address, at, _ = text.partition("/")[0].partition("@")
        assert jid.local == (address if at else None)


_FULL_STOPS = st.sampled_from([".", "\u3002", "\uff0e", "\uff61"])
_LABELS = st.sampled_from(
    [
        "a",
        "A",
        "ａ",
        "1",
        "bücher",
        "bücher",
        "BÜCHER",
        "xn--bcher-kva",
        "straße",
        "strasse",
        "xn--strae-oqa",
        "ſ",
        "s",
        "İ",
        "i̇",
        "Ა",
        "ა",
        "ꭰ",
        "Ꭰ",
        "ﬁ",
        "fi",
        "א",
    ]
) | st.text(max_size=3)


@given(st.lists(st.tuples(_LABELS, _FULL_STOPS), min_size=1, max_size=3), st.booleans())
def test_what_is_delivered_is_one_domain_for_old_and_new_readers(
    labels: list[tuple[str, str]], ends: bool
) -> None:
    text = "".join(label + stop for label, stop in labels)
    text = text if ends else text[:-1]
    jid = _outcome(lambda: JID.parse_delivered(f"a@{text}"))
    if not isinstance(jid, JID) or "/" in text:
        return
    # Those who convert by IDNA2003 and those who convert by IDNA2008 ask the DNS for the same name.
    new = ".".join([idna.alabel(label).decode() for label in jid.domain.split(".")])
    old = text if text.isascii() else text.encode("idna").decode()
    assert old == new


def test_every_printable_ascii_character() -> None:
    """The set of RFC 7622 §3.3.1, exhaustively."""
    for code in range(128):
        character = chr(code)
        allowed = 0x21 <= code <= 0x7E and character not in "\"&'/:<>@"
        parsed = _outcome(lambda character=character: JID.parse(f"x{character}@b"))
        if character in "/@":
            continue  # separators: the text is read as something else
        assert parsed == (JID("x" + character.lower(), "b", None) if allowed else None), character


def test_long_texts_are_not_kept() -> None:
    jid_module._parse_cached.cache_clear()
    JID.parse("a@b/" + "x" * 400)
    assert jid_module._parse_cached.cache_info().currsize == 0
    assert JID.parse("a@b/x") is JID.parse("a@b/x")
    jid_module._parse_delivered_cached.cache_clear()
    JID.parse_delivered("a@b/" + "x" * 400)
    assert jid_module._parse_delivered_cached.cache_info().currsize == 0
    assert JID.parse_delivered("a@b/x") is JID.parse_delivered("a@b/x")
    for cache in (jid_module._parse_cached, jid_module._parse_delivered_cached):
        assert cache.cache_info().maxsize == 4096


def test_ascii_addresses_load_no_tables() -> None:
    program = (
        "import sys; from xep.jid import JID; JID.parse('Romeo@Example.org./Balcony')\n"
        "assert not {'precis_i18n', 'idna'} & set(sys.modules), 'loaded'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
