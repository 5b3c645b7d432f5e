"""Who gets in, what is refused before a handler sees it, and in which words."""

from typing import Any, Literal
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.link.router.table import BOTH, IQRoute, Request, StanzaRoute, Table
from tests.component.link.router.wire import (
    AGENT,
    DOMAIN,
    REFUSED,
    Bench,
    Do,
    Done,
    addresses,
    condition,
    do,
    element,
    error_of,
    iq,
    is_bare,
    parse,
    request,
)
from xep.fluux_agent.errors import Malformed, TooBig
from xep.jid import JID
from xep.ping import NAMESPACE as PING
from xep.stream import StreamLimits

REFUSED_CONTENTS = [
    "",
    "<do xmlns='urn:test:router'/>",
    "<do xmlns='urn:test:router' number='x'/>",
    "<do xmlns='urn:test:router'/><do xmlns='urn:test:router'/>",
    "<unknown xmlns='urn:test:unknown'/>",
]


def echo(request: Request[Do]) -> Done:
    return Done(text=request.payload.what)


def never(request: Request[Any]) -> None:
    raise AssertionError(f"asked for {request.stanza.name}")


SILENT = (
    StanzaRoute("message", frozenset(("chat", "normal", "headline", "error")), never),
    StanzaRoute("presence", frozenset(("available", "subscribe")), never),
)


# -- addresses -----------------------------------------------------------------------------------

_addresses = st.sampled_from(
    [DOMAIN, AGENT, f"{AGENT}/Ünï cøde", f"{DOMAIN}/&lt;'\"", f"ASSISTANT@{DOMAIN}"]
)
_characters = st.characters(codec="utf-8", exclude_characters="\ufffe\uffff", min_codepoint=32)


@given(
    id_=st.text(_characters | st.sampled_from("\t\n\r&<>'\""), min_size=1),
    resource=st.text(_characters, max_size=10),
    to=_addresses,
)
def test_addresses_go_back_byte_for_byte(id_: str, resource: str, to: str) -> None:
    from_ = f"alice@a.example/{resource}"
    reply = Bench([do(echo)]).answer(request("x", id_=id_, from_=from_, to=to))
    assert addresses(reply) == (id_, from_, to)


def test_a_request_without_an_address_is_answered_by_the_domain() -> None:
    reply = Bench([do(echo)]).answer(request(to=None))
    assert addresses(reply) == ("1", "alice@a.example/phone", DOMAIN)
    assert reply.get("type") == "result"


@pytest.mark.parametrize(
    "from_",
    ["@a.example", "al ice@a.example/x", "a" * 5000 + "@a.example", "☃@a.example", "", "a@"],
)
def test_a_malformed_sender_is_told_so_under_its_very_address(from_: str) -> None:
    reply = Bench([do(never)]).answer(request(from_=from_))
    assert addresses(reply) == ("1", from_, DOMAIN)
    assert condition(reply) == "jid-malformed"
    assert error_of(reply).text


def test_an_address_that_servers_take_for_another_account_is_malformed() -> None:
    """Prosody keeps U+1C90 and U+10D0 apart, RFC 7622 joins them: the one must not be the other."""
    bench = Bench([do(echo)], admits=lambda jid: jid == JID.parse("ა@a.example"))
    assert bench.answer(request(from_="ა@a.example/x")).get("type") == "result"
    assert condition(bench.answer(request(from_="Ა@a.example/x"))) == "jid-malformed"


@pytest.mark.parametrize("to", [f"nobody@{DOMAIN}", "other.example", "@", f"☃@{DOMAIN}"])
def test_who_is_not_here_does_not_serve(to: str) -> None:
    reply = Bench([do(never)]).answer(request(to=to))
    assert addresses(reply) == ("1", "alice@a.example/phone", to)
    assert condition(reply) == "service-unavailable"


@pytest.mark.parametrize("type_", ["chat", "normal", None, "unheard-of"])
def test_who_writes_to_nobody_is_told(type_: str | None) -> None:
    bench = Bench(SILENT)
    to = f"nobody@{DOMAIN}"
    reply = bench.answer(
        element(
            "message",
            "<body>hello</body>",
            type=type_,
            from_="alice@a.example/phone",
            to=to,
            id="1",
        )
    )
    assert addresses(reply) == ("1", "alice@a.example/phone", to)
    assert (reply.tag, reply.get("type")) == ("{jabber:client}message", "error")
    assert condition(reply) == "service-unavailable"


@pytest.mark.parametrize("type_", ["error", "headline", "groupchat"])
def test_what_a_bounce_could_answer_is_not_bounced(type_: str) -> None:
    bench = Bench(SILENT)
    bench.receive(
        element("message", type=type_, from_="alice@a.example/phone", to=f"nobody@{DOMAIN}", id="1")
    )
    bench.receive(element("presence", from_="alice@a.example/phone", to=f"nobody@{DOMAIN}"))
    assert bench.output.sent == []


# -- policy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", REFUSED_CONTENTS)
@pytest.mark.parametrize("type_", ["get", "set", "unheard-of", None])
@pytest.mark.parametrize("to", [DOMAIN, AGENT, f"nobody@{DOMAIN}", "@"])
@pytest.mark.parametrize("id_", ["1", None])
def test_the_refused_learn_nothing(
    content: str, type_: str | None, to: str, id_: str | None
) -> None:
    bench = Bench([do(never), *SILENT])
    reply = bench.answer(iq(content, type_=type_, id_=id_, to=to, from_=f"x@{REFUSED}/y"))
    assert addresses(reply) == (id_, f"x@{REFUSED}/y", to)
    assert is_bare(reply, "service-unavailable")


def test_the_refused_cannot_tell_that_the_service_is_busy() -> None:
    bench = Bench([do(never)])
    idle = bench.answer(request(from_=REFUSED))
    bench.output.congested = True
    assert ET.tostring(bench.answer(request(from_=REFUSED))) == ET.tostring(idle)


@pytest.mark.parametrize("kind", ["message", "presence"])
@pytest.mark.parametrize("type_", ["chat", "subscribe", None])
@pytest.mark.parametrize("from_", [f"x@{REFUSED}", "@malformed", "", None])
@pytest.mark.parametrize("congested", [False, True])
def test_the_refused_hear_nothing(
    kind: str, type_: str | None, from_: str | None, congested: bool
) -> None:
    bench = Bench(SILENT)
    bench.output.congested = congested
    bench.receive(
        element(kind, "<body>hello</body>", type=type_, from_=from_, to=AGENT),
        element(kind, "<body>hello</body>", type=type_, from_=from_, to="@"),
    )
    assert bench.output.sent == []


def test_our_own_domain_is_always_let_in() -> None:
    """Servers loop an IQ to our own domain back to us: an end-to-end probe."""
    bench = Bench([do(echo)], admits=lambda _: False)
    assert bench.answer(request(from_=DOMAIN)).get("type") == "result"
    assert is_bare(bench.answer(request(from_="a.example")), "service-unavailable")


def test_policy_is_asked_for_the_bare_address() -> None:
    asked = []

    def admits(jid: JID) -> bool:
        asked.append(jid)
        return True

    bench = Bench([do(echo)], admits=admits)
    for resource in ("x", "y"):
        bench.answer(request(from_=f"alice@a.example/{resource}"))
    assert set(asked) == {JID.parse("alice@a.example")}


# -- what an IQ must be --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stanza",
    [
        iq(id_=None),
        iq(type_=None),
        iq(type_="GET"),
        iq(type_=""),
        iq(""),
        iq("text"),
        iq("<do xmlns='urn:test:router'/><do xmlns='urn:test:router'/>"),
    ],
)
def test_what_is_no_request_is_a_bad_one(stanza: str) -> None:
    assert condition(Bench([do(never)]).answer(stanza)) == "bad-request"


def test_a_malformed_payload_is_named() -> None:
    reply = Bench([do(never)]).answer(iq("<do xmlns='urn:test:router' number='seven'/>"))
    error = error_of(reply)
    assert (error.condition, error.application) == ("bad-request", (Malformed(),))
    assert "number" in error.text
    assert "expected an integer" in error.text


def test_what_nobody_serves_is_unavailable() -> None:
    bench = Bench([do(echo, "get")])
    assert condition(bench.answer(request(type_="set"))) == "service-unavailable"
    assert condition(bench.answer(iq(element("ping", xmlns=PING)))) == "service-unavailable"
    assert condition(bench.answer(iq("<do/>"))) == "service-unavailable"


def test_a_route_serves_its_hosts_only() -> None:
    bench = Bench([IQRoute("get", Do, echo, hosts=frozenset(("agent",)))])
    assert condition(bench.answer(request(to=DOMAIN))) == "service-unavailable"
    assert bench.answer(request(to=AGENT)).get("type") == "result"


def test_results_and_errors_are_never_answered() -> None:
    bench = Bench([do(never)])
    for type_ in ("result", "error"):
        for from_ in ("alice@a.example", "@malformed", f"x@{REFUSED}", None):
            bench.receive(iq(type_=type_, from_=from_), iq("", type_=type_, id_=None, from_=from_))
    assert bench.output.sent == []


def test_the_handler_sees_the_request_whole() -> None:
    seen: list[Request[Do]] = []
    bench = Bench([do(seen.append)])
    bench.answer(request("x", from_="alice@a.example/phone", to=AGENT))
    (found,) = seen
    assert found.payload == Do(what="x")
    assert (str(found.sender), str(found.principal)) == ("alice@a.example/phone", "alice@a.example")
    assert (str(found.to), found.host) == (AGENT, "agent")


def test_nobody_here_has_a_resource() -> None:
    bench = Bench([do(never)])
    for to in (f"{AGENT}/r", f"{DOMAIN}/r"):
        assert condition(bench.answer(request(to=to))) == "service-unavailable"


# -- stanzas over a limit ------------------------------------------------------------------------

_SMALL = StreamLimits(bytes=2_000, depth=10, elements=20)
_OVER = {
    "bytes": "x" * 3_000,
    "depth": "<a>" * 12 + "</a>" * 12,
    "elements": "<a/>" * 30,
}


@pytest.mark.parametrize("limit", _OVER)
@pytest.mark.parametrize("type_", ["get", "set"])
def test_a_skipped_request_is_refused(limit: str, type_: str) -> None:
    bench = Bench([do(never)], limits=_SMALL)
    reply = bench.answer(iq(_OVER[limit], type_=type_, id_="&<'"))
    error = error_of(reply)
    assert addresses(reply) == ("&<'", "alice@a.example/phone", DOMAIN)
    assert (error.condition, error.application) == ("policy-violation", (TooBig(),))


def test_a_skipped_request_of_somebody_refused_learns_nothing_more() -> None:
    bench = Bench([do(never)], limits=_SMALL)
    big = _OVER["bytes"]
    assert is_bare(bench.answer(iq(big, from_=f"x@{REFUSED}")), "service-unavailable")
    assert condition(bench.answer(iq(big, from_="@x"))) == "jid-malformed"


@pytest.mark.parametrize("type_", ["chat", "normal", None])
def test_a_skipped_message_comes_back(type_: str | None) -> None:
    bench = Bench([do(never), *SILENT], limits=_SMALL)
    message = element("message", _OVER["bytes"], from_="alice@a.example", to=DOMAIN, id="7")
    bench.receive(message if type_ is None else message.replace(" ", f" type='{type_}' ", 1))
    (bounced,) = bench.replies
    assert (bounced.tag, bounced.get("type")) == ("{jabber:client}message", "error")
    assert addresses(bounced) == ("7", "alice@a.example", DOMAIN)
    assert error_of(bounced).condition == "policy-violation"


def test_nothing_else_that_is_skipped_is_answered() -> None:
    bench = Bench([do(never), *SILENT], limits=_SMALL)
    big = _OVER["bytes"]
    for type_ in ("result", "error", "unheard-of", None):
        bench.receive(iq(big, type_=type_))
    bench.receive(element("presence", big, from_="alice@a.example", to=DOMAIN))
    bench.receive(element("message", big, from_=f"x@{REFUSED}", to=DOMAIN))
    for type_ in ("error", "headline", "groupchat"):
        bench.receive(element("message", big, type=type_, from_="alice@a.example", to=DOMAIN))
    assert bench.output.sent == []


def test_what_follows_a_skipped_stanza_is_served() -> None:
    bench = Bench([do(echo)], limits=_SMALL)
    bench.receive(iq(_OVER["bytes"], id_="1"), request(id_="2"))
    assert [(r.get("id"), r.get("type")) for r in bench.replies] == [
        ("1", "error"),
        ("2", "result"),
    ]


# -- replies that no stanza can carry ------------------------------------------------------------


@pytest.mark.parametrize(("size", "fits"), [(700, True), (1_000, False), (100_000, False)])
def test_no_reply_is_larger_than_servers_take(size: int, fits: bool) -> None:
    bench = Bench([do(lambda _: Done(text="é" * (size // 2)))], max_stanza_bytes=1_000)
    reply = bench.answer(request())
    assert len(bench.output.sent[0].encode()) <= 1_000
    if fits:
        assert reply.get("type") == "result"
    else:
        assert condition(reply) == "policy-violation"
        assert error_of(reply).application == (TooBig(limit=1_000),)


@given(
    id_=st.text("'&x", max_size=300),
    text=st.text("é<", max_size=600),
    what=st.sampled_from(["result", "error"]),
)
def test_an_id_that_grows_when_it_is_escaped_counts_too(id_: str, text: str, what: str) -> None:
    from xep.stanza_error import StanzaError

    def handler(_: Request[Do]) -> Done:
        if what == "error":
            raise StanzaError("gone", text)
        return Done(text=text)

    bench = Bench([do(handler)], max_stanza_bytes=2_300)
    reply = bench.answer(request(id_=id_))
    assert len(bench.output.sent[0].encode()) <= 2_300
    assert addresses(reply) == (id_, "alice@a.example/phone", DOMAIN)


def test_an_id_that_no_stanza_can_carry_costs_its_sender_the_reply_and_nobody_the_stream() -> None:
    bench = Bench([do(echo)], max_stanza_bytes=2_000)
    bench.receive(request(id_="'" * 1_000), request(id_="2"))
    assert [reply.get("id") for reply in bench.replies] == ["2"]


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["unheard-of", "", None])
def test_a_message_of_no_known_type_is_a_normal_one(type_: str | None) -> None:
    seen: list[Request[None]] = []
    bench = Bench([StanzaRoute("message", frozenset(("normal",)), seen.append)])
    bench.receive(element("message", type=type_, from_="alice@a.example", to=AGENT))
    assert len(seen) == 1


def test_presence_of_no_known_type_is_ignored() -> None:
    bench = Bench(SILENT)
    bench.receive(element("presence", type="unheard-of", from_="alice@a.example", to=AGENT))
    assert bench.output.sent == []


def test_a_message_whose_handler_breaks_comes_back_and_tells_no_secret() -> None:
    def breaks(_: Request[None]) -> None:
        raise ValueError("secret")

    bench = Bench([StanzaRoute("message", frozenset(("chat",)), breaks), do(echo)])
    said = element("message", "<body/>", type="chat", from_="alice@a.example", to=AGENT)
    bench.receive(said, request())
    assert [reply.get("type") for reply in bench.replies] == ["error", "result"]
    assert condition(bench.replies[0]) == "internal-server-error"
    assert "secret" not in bench.output.sent[0]


@pytest.mark.parametrize("type_", ["chat", "normal", None, "unheard-of"])
def test_a_message_that_cannot_be_taken_bounces(type_: str | None) -> None:
    bench = Bench([StanzaRoute("message", frozenset(("chat", "normal")), never)])
    bench.output.congested = True
    bench.receive(
        element(
            "message", "<body>x</body>", type=type_, id="5", from_="alice@a.example/x", to=AGENT
        )
    )
    (bounce,) = bench.replies
    assert (bounce.tag, bounce.get("type")) == ("{jabber:client}message", "error")
    assert addresses(bounce) == ("5", "alice@a.example/x", AGENT)
    assert condition(bounce) == "resource-constraint"


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("message", "error"),
        ("message", "headline"),
        ("message", "groupchat"),
        ("presence", "available"),
        ("presence", "subscribe"),
    ],
)
def test_nothing_bounces_that_could_be_answered_in_turn(
    kind: Literal["message", "presence"], type_: str
) -> None:
    bench = Bench([StanzaRoute(kind, frozenset((type_,)), never)])
    bench.output.congested = True
    bench.receive(element(kind, type=type_, from_="alice@a.example", to=AGENT))
    assert bench.output.sent == []


# -- the table -----------------------------------------------------------------------------------


def test_two_handlers_of_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match="two handlers claim"):
        Table([do(echo), do(echo)])
    message = StanzaRoute("message", frozenset(("chat",)), never)
    with pytest.raises(ValueError, match=r"two handlers claim (component|agent) message chat"):
        Table([message, message])
    Table([do(echo, "get"), do(echo, "set")])


def test_features_are_those_of_the_routes_at_the_host() -> None:
    table = Table(
        [
            IQRoute("get", Do, echo, ("b", "a"), frozenset(("agent",))),
            IQRoute("set", Do, echo, ("a", "c"), BOTH),
            StanzaRoute("presence", frozenset(("probe",)), never, ("d",)),
        ]
    )
    assert table.features("agent") == ("a", "b", "c", "d")
    assert table.features("component") == ("a", "c", "d")


def test_replies_are_well_formed_whatever_was_asked() -> None:
    bench = Bench([do(echo)])
    bench.receive(request("]]>&amp;<x/>\"'"))
    assert parse(bench.output.sent[0])[0].text == "]]>&amp;<x/>\"'"
