"""Nodeprep (RFC 3920 Appendix A) as servers apply it."""
# ruff: noqa: RUF001 - the look-alikes are what is tested

from stringprep import in_table_a1

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from component.policy.stringprep_profiles import nodeprep


@pytest.mark.parametrize(
    ("text", "served"),
    [
        ("romeo", "romeo"),
        ("ROMEO", "romeo"),
        ("ß", "ss"),
        ("ς", "σ"),
        ("ΣΑΣ", "σασ"),
        ("☃", "☃"),
        ("Ⅳ", "iv"),
        ("ｒ", "r"),
        ("a\u00adb", "ab"),  # the soft hyphen is mapped to nothing
        ("cafe\u0301", "café"),
        ("אב", "אב"),
        ("", ""),
    ],
)
def test_nodeprep_maps_a_localpart_to_its_canonical_form(text: str, served: str) -> None:
    assert nodeprep(text) == served


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "a\u00a0b",
        "a\nb",
        "a@b",
        "a/b",
        "a＠b",
        "o'neil",
        "\ue000",  # private use
        "\ufffe",
        "\ud800",
        "\u202e",
        "אa",
        "א1",
        "\u1c90",  # Georgian capitals came with Unicode 11
        "\u1e9e",  # and the capital sharp s with 5.1
    ],
)
def test_nodeprep_refuses_prohibited_characters(text: str) -> None:
    assert nodeprep(text) is None


@given(st.text(st.characters() | st.sampled_from("aZ@/ ßΣςſİⅣ＠／ｆ\u0301\u00adא1☃"), max_size=8))
def test_nodeprep_agrees_with_a_client_library(text: str) -> None:
    from aioxmpp import stringprep

    # The library looks for unassigned characters after mapping only, which can hide them.
    assume(not any(map(in_table_a1, text)))
    try:
        expected = stringprep.nodeprep(text)
    except ValueError:
        expected = None
    assert nodeprep(text) == expected
