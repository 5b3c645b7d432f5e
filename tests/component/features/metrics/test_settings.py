"""Where metrics may be served."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from component.features.metrics.settings import Metrics, address_of


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9465", ("127.0.0.1", 9465)),
        ("127.8.7.6:1", ("127.8.7.6", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("", None),
    ],
)
def test_an_address_with_a_port_is_read(text: str, address: tuple[str, int] | None) -> None:
    assert Metrics(listen=text).address == address


@pytest.mark.parametrize(
    "text", ["9465", "localhost:9465", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:9465"]
)
def test_a_text_that_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be an address and a port"):
        Metrics(listen=text)


@pytest.mark.parametrize("text", ["0.0.0.0:9465", "192.0.2.1:9465", "[::]:9465"])
def test_an_address_that_other_machines_reach_needs_a_setting(text: str) -> None:
    with pytest.raises(ValidationError, match="other machines can reach"):
        Metrics(listen=text)
    assert Metrics(listen=text, anywhere=True).address is not None


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_none(text: str) -> None:
    found = address_of(text)
    assert found is None or 0 < found[1] < 65536
