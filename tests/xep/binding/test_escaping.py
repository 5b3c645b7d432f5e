"""Attribute values that were escaped are read back."""

from hypothesis import given
from hypothesis import strategies as st

from xep.binding.escaping import escape_attribute, unescape_attribute, without_forbidden


@given(st.text() | st.text(alphabet="&<>'\"\t\n\r;#amplt9"))
def test_what_was_escaped_is_read_back(text: str) -> None:
    assert unescape_attribute(escape_attribute(text)) == without_forbidden(text)
