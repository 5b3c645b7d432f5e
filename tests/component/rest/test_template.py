"""No value changes where a request goes, or adds a line to it."""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.config.rest import RestSkill
from component.http.targets import target_of
from component.rest.template import RequestTemplate, checked_path, segment
from component.skills import InvalidParam

ENTRY = RestSkill(
    description="Find something.",
    method="POST",
    url="https://api.example.com/v1/{first}/of{second}{third}/end",
    parameters={name: {} for name in ("first", "second", "third", "word", "mark", "data")},
    optional=("word", "mark", "data"),
    query={"q": "{word}", "fixed": "a&b"},  # type: ignore[dict-item]
    headers={"X-Mark": "m {mark}", "Authorization": "Bearer key"},  # type: ignore[dict-item]
    body={"data": "{data}", "note": "about {word}", "fixed": [1, "{data}"]},
)
TEMPLATE = RequestTemplate(ENTRY)
plain = r".. . ../.. ..\.. %2e%2e %252e%252e%252fx a/../b ?x=1 #f @evil.example //evil.example é"
plain += r" \\evil.example :80 {first} %s"
nasty = st.sampled_from([*plain.split(), "\r\nX: y", "\u2028", "", " ", "a b"])
texts = st.text() | nasty
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=6
)
arguments = st.dictionaries(
    st.sampled_from(["first", "second", "third", "word", "mark", "data"]), values
) | st.fixed_dictionaries(
    {"first": texts, "second": texts, "third": texts}, optional={"word": texts, "mark": texts}
)


@given(arguments)
@example({"first": "a", "second": ".", "third": "."})
@example({"first": "x", "second": "y", "third": "z", "mark": "a\r\nHost: evil.example"})
def test_a_request_goes_where_the_settings_say(values: dict[str, Any]) -> None:
    try:
        request = TEMPLATE.request(values)
    except InvalidParam:
        return
    target = target_of(request.url)
    assert target.origin == "https://api.example.com:443"
    parts = urlsplit(request.url)
    segments = parts.path.split("/")
    assert len(segments) == 5
    assert (segments[1], segments[4]) == ("v1", "end")
    assert not {".", ".."} & {unquote(unquote(each)) for each in segments}
    if isinstance(values["first"], str):
        assert unquote(segments[2]) == values["first"]
    fields = dict(parse_qsl(parts.query, keep_blank_values=True))
    assert set(fields) <= {"q", "fixed"}
    assert fields["fixed"] == "a&b"
    if isinstance(values.get("word"), str):
        assert fields["q"] == values["word"]
    # Everything that h11 refuses would be an error, and nothing that it accepts has a line end.
    h11.Request(
        method=request.method,
        target=target.path,
        headers=[("Host", target.authority), *request.headers, *request.secret_headers],
    )


@pytest.mark.parametrize(
    "value", ["", ".", "..", "a/../b", "..\\x", "%2e%2e", "%252e%252E/x", "\0"]
)
def test_a_segment_that_leads_elsewhere_is_refused(value: str) -> None:
    with pytest.raises(InvalidParam):
        segment("city", value)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("São Paulo", "S%C3%A3o%20Paulo"),
        ("a/b", "a%2Fb"),
        (7, "7"),
        (True, "true"),
        ("v1.2", "v1.2"),
        (["a", 1], "a%2C1"),
        ("?a#b", "%3Fa%23b"),
        ("100%", "100%25"),
    ],
)
def test_a_segment_is_percent_encoded(value: Any, encoded: str) -> None:
    assert segment("city", value) == encoded


def test_two_values_beside_each_other_cannot_lead_upwards() -> None:
    with pytest.raises(InvalidParam, match="leads upwards"):
        checked_path("/a/" + segment("x", "%2") + segment("y", "e") + "./b")


def test_a_body_has_the_values_themselves_and_no_omitted_ones() -> None:
    path = {"first": "a", "second": "b", "third": "c"}
    full = TEMPLATE.request({**path, "data": {"n": [1, None]}, "word": "x"})
    assert full.body == b'{"data":{"n":[1,null]},"note":"about x","fixed":[1,{"n":[1,null]}]}'
    assert TEMPLATE.request({**path, "data": None}).body == b'{"fixed":[1]}'
    assert dict(full.secret_headers) == {"Authorization": "Bearer key"}
