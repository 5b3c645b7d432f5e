"""Where traces are sent."""

import pytest
from pydantic import ValidationError

from component.config.service import Audit, Traces


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
