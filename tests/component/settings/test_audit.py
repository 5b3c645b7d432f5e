"""What is recorded, measured and traced: where it may be served, and where it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from component.settings.audit import Audit, Metrics, Traces, address_of


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9465", ("127.0.0.1", 9465)),
        ("127.8.7.6:1", ("127.8.7.6", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("", None),
    ],
)
def test_figures_are_served_on_this_machine(text: str, address: tuple[str, int] | None) -> None:
    assert Metrics(listen=text).address == address


@pytest.mark.parametrize(
    "text", ["9465", "localhost:9465", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:9465"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be an address and a port"):
        Metrics(listen=text)


@pytest.mark.parametrize("text", ["0.0.0.0:9465", "192.0.2.1:9465", "[::]:9465"])
def test_other_machines_reach_them_only_if_that_is_said(text: str) -> None:
    with pytest.raises(ValidationError, match="other machines can reach"):
        Metrics(listen=text)
    assert Metrics(listen=text, anywhere=True).address is not None


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_none(text: str) -> None:
    found = address_of(text)
    assert found is None or 0 < found[1] < 65536


@pytest.mark.parametrize("text", ["", "http://127.0.0.1:4318", "https://otel.example.com/x"])
def test_where_traces_go(text: str) -> None:
    assert Traces(endpoint=text).endpoint == text


@pytest.mark.parametrize("text", ["127.0.0.1:4318", "ftp://a", "http://", "http://[::1"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must be an http or https address"):
        Traces(endpoint=text)


def test_a_password_in_the_endpoint_is_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError, match="contains a password") as caught:
        Traces(endpoint="https://me:hunter2@otel.example.com")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(Traces(endpoint="", authorization="hunter2"))  # type: ignore[arg-type]


def test_a_file_of_the_record_has_a_size_worth_the_name() -> None:
    with pytest.raises(ValidationError):
        Audit(max_file_bytes=1000)
    with pytest.raises(ValidationError):
        Audit(keep_days=-1)
