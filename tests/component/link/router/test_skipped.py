"""Stanzas that cannot be parsed: their requests are answered, their floods are not logged."""

import pytest
import structlog
from structlog.testing import capture_logs

from component.link.router.rare_log import RareLog
from component.link.router.table import Request
from tests.component.link.router.wire import (
    DOMAIN,
    REFUSED,
    Bench,
    Do,
    addresses,
    condition,
    do,
    element,
    error_of,
    iq,
    is_bare,
    request,
)
from xep.fluux_agent.errors import Malformed
from xep.stream import StreamLimits

BAD = {
    "unbound prefix": "<a:b/>",
    "duplicate attribute": "<b c='' c=''/>",
    "not well-formed (invalid token)": "\x01",
    "must not be undeclared or bound": "<b xmlns:xml='urn:x'/>",
    "bound to one of the reserved": "<b xmlns='http://www.w3.org/XML/1998/namespace'/>",
}


def never(_: Request[Do]) -> None:
    raise AssertionError("it cannot be parsed")


@pytest.mark.parametrize("reason", BAD)
@pytest.mark.parametrize("type_", ["get", "set"])
def test_a_request_that_cannot_be_parsed_is_refused(reason: str, type_: str) -> None:
    bench = Bench([do(never)])
    reply = bench.answer(iq(BAD[reason], type_=type_, id_="&<'"))
    error = error_of(reply)
    assert addresses(reply) == ("&<'", "alice@a.example/phone", DOMAIN)
    assert (error.condition, error.application) == ("bad-request", (Malformed(),))
    assert reason in error.text


def test_its_sender_is_judged_first() -> None:
    bench = Bench([do(never)])
    bad = BAD["unbound prefix"]
    assert is_bare(bench.answer(iq(bad, from_=f"x@{REFUSED}")), "service-unavailable")
    assert condition(bench.answer(iq(bad, from_="@x"))) == "jid-malformed"


def test_a_message_that_cannot_be_parsed_comes_back() -> None:
    bench = Bench([do(never)])
    bench.receive(element("message", BAD["unbound prefix"], from_="alice@a.example", to=DOMAIN))
    (bounced,) = bench.replies
    assert (bounced.tag, bounced.get("type")) == ("{jabber:client}message", "error")
    assert error_of(bounced).condition == "bad-request"


def test_nothing_else_that_cannot_be_parsed_is_answered() -> None:
    bench = Bench([do(never)])
    bad = BAD["unbound prefix"]
    for type_ in ("result", "error"):
        bench.receive(iq(bad, type_=type_))
    bench.receive(element("presence", bad, from_="alice@a.example", to=DOMAIN))
    bench.receive(element("message", bad, type="error", from_="alice@a.example", to=DOMAIN))
    assert bench.output.sent == []


def test_a_brace_in_a_namespace_is_no_fault() -> None:
    bench = Bench([do(lambda _: None)])
    content = "<do xmlns='urn:test:router'><x xmlns='urn:}'/></do>"
    assert bench.answer(iq(content)).get("type") == "result"


def test_a_flood_is_logged_once_and_in_few_words() -> None:
    bench = Bench([do(lambda _: None)], limits=StreamLimits(elements=4))
    with capture_logs() as lines:
        bench.receive(
            *(
                iq(content, from_=f"{'x' * 900}@{'y.' * 400}example/{i}")
                for i in range(500)
                for content in ("<a:b/>", "<a/>" * 9)
            ),
            request(id_="good"),
        )
    assert "good" in [reply.get("id") for reply in bench.replies]
    assert [line["event"] for line in lines] == ["skipped a stanza"]
    assert len(str(lines[0])) < 600


def test_a_line_says_how_many_were_left_out() -> None:
    with capture_logs() as lines:
        times = iter((0.0, 1.0, 9.9, 10.0, 10.1, 100.0, 100.0))
        log = RareLog(structlog.get_logger(), lambda: next(times))
        for _ in range(6):
            log.warning("a", text="x" * 1000, number=1)
        log.warning("b")
    assert [(line["event"], line.get("unlogged")) for line in lines] == [
        ("a", None),
        ("a", 2),
        ("a", 1),
        ("b", None),
    ]
    assert len(lines[0]["text"]) == 201
    assert lines[0]["number"] == 1


def test_an_id_too_long_to_be_sent_back_is_logged_once() -> None:
    bench = Bench([do(lambda _: None)], max_stanza_bytes=2_000)
    with capture_logs() as lines:
        bench.receive(*(request(id_="'" * 1_000) for _ in range(50)))
    assert len(lines) == 1
